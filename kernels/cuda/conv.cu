// Convolutions as products with matrices of patches. Depthwise convolutions have one channel per
// group and run as sums of their own. Where the build has cuDNN, it computes what it can of the
// others.
#include "steelyard/kernels/conv.h"

#include "steelyard/kernels/cuda/column_sums.h"
#include "steelyard/kernels/cuda/conv_cudnn.h"
#include "steelyard/kernels/cuda/conv_patches.h"
#include "steelyard/kernels/cuda/conv_weights.h"
#include "steelyard/kernels/cuda/gemm.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/fake_quantize.h"

namespace steelyard::kernels {
namespace cuda {
namespace {

// Depthwise weights are packed [taps, channels].
template <typename T>
__global__ void __launch_bounds__(kThreads)
    depthwise_forward_kernel(std::int64_t n, ConvSizes c, const T* x, const T* packed,
                             const T* bias, T* y) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const std::int64_t pixel = divide(i, c.s.in_channels);
  const std::int64_t channel = i - pixel * c.s.in_channels;
  T sum = bias == nullptr ? T(0) : bias[channel];
  for (std::int64_t tap = 0; tap < c.taps; ++tap) {
    const std::int64_t input = input_pixel(c, pixel, tap);
    if (input < 0) continue;
    sum += x[input * c.s.in_channels + channel] * packed[tap * c.s.in_channels + channel];
  }
  y[i] = sum;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    depthwise_backward_input_kernel(std::int64_t n, ConvSizes c, const T* grad_y, const T* packed,
                                    T* grad_x) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const std::int64_t pixel = divide(i, c.s.in_channels);
  const std::int64_t channel = i - pixel * c.s.in_channels;
  T sum = 0;
  for_each_window(c, pixel, [&](std::int64_t output, std::int64_t tap) {
    sum += grad_y[output * c.s.in_channels + channel] * packed[tap * c.s.in_channels + channel];
  });
  grad_x[i] = sum;
}

// A tap's gradient: the batches are the taps, the rows the output pixels.
template <typename T, typename Input>
struct DepthwiseTerm {
  ConvSizes c;
  Input x;
  const T* grad_y;

  __device__ void operator()(std::int64_t tap, std::int64_t output, std::int64_t channel,
                             double (&sums)[1]) const {
    const std::int64_t input = input_pixel(c, output, tap);
    if (input < 0) return;
    sums[0] += static_cast<double>(x(input * c.s.in_channels + channel) *
                                   grad_y[output * c.s.in_channels + channel]);
  }
};

// y = patches * w^T, a batch for every group.
template <typename T>
void forward_product(const CudaQueue& queue, const ConvSizes& c, const PixelRange& range,
                     const T* patches, const T* packed, T* y) {
  gemm(queue,
       {.m = range.end - range.begin,
        .n = c.out_channels(),
        .k = c.group_columns(),
        .transpose_b = true,
        .row_stride_a = c.columns,
        .row_stride_c = c.s.out_channels,
        .batches = c.s.groups,
        .batch_stride_a = c.group_columns(),
        .batch_stride_b = c.out_channels() * c.group_columns(),
        .batch_stride_c = c.out_channels()},
       patches, packed, y + range.begin * c.s.out_channels);
}

// The patches' gradient = grad_y * w.
template <typename T>
void backward_input_product(const CudaQueue& queue, const ConvSizes& c, const PixelRange& range,
                            const T* grad_y, const T* packed, T* patches) {
  gemm(queue,
       {.m = range.end - range.begin,
        .n = c.group_columns(),
        .k = c.out_channels(),
        .row_stride_a = c.s.out_channels,
        .row_stride_c = c.columns,
        .batches = c.s.groups,
        .batch_stride_a = c.out_channels(),
        .batch_stride_b = c.out_channels() * c.group_columns(),
        .batch_stride_c = c.group_columns()},
       grad_y + range.begin * c.s.out_channels, packed, patches);
}

// grad_w = grad_y^T * patches, added to that of earlier ranges.
template <typename T>
void backward_weight_product(const CudaQueue& queue, const ConvSizes& c, const PixelRange& range,
                             const T* grad_y, const T* patches, T* packed) {
  gemm(queue,
       {.m = c.out_channels(),
        .n = c.group_columns(),
        .k = range.end - range.begin,
        .transpose_a = true,
        .accumulate = range.begin > 0,
        .row_stride_a = c.s.out_channels,
        .row_stride_b = c.columns,
        .batches = c.s.groups,
        .batch_stride_a = c.out_channels(),
        .batch_stride_b = c.group_columns(),
        .batch_stride_c = c.out_channels() * c.group_columns()},
       grad_y + range.begin * c.s.out_channels, patches, packed);
}

template <typename T>
void dense_backward_input(const CudaQueue& queue, const ConvSizes& c, const T* grad_y,
                          const T* packed, T* grad_x) {
  if (is_pointwise(c.s)) {
    return backward_input_product(queue, c, PixelRange{0, c.pixels()}, grad_y, packed, grad_x);
  }
  const std::int64_t size = pixels_at_once<T>(queue, c);
  const Scratch<T> patches(queue, size * c.columns);
  for_each_range(c, size, [&](const PixelRange& range) {
    backward_input_product(queue, c, range, grad_y, packed, patches.data());
    gather<T>(queue, c, range, patches.data(), grad_x);
  });
}

template <typename T, typename Input>
void depthwise_backward_weight(const CudaQueue& queue, const ConvSizes& c, const Input& x,
                               const T* grad_y, T* packed) {
  sum_columns<1>(queue, make_row_chunks(c.taps, c.pixels(), c.s.in_channels),
                 DepthwiseTerm<T, Input>{c, x, grad_y}, StoreSum<T>{packed});
}

// x is what for_each_patches() takes.
template <typename T, typename Input>
void dense_backward_weight(const CudaQueue& queue, const ConvSizes& c, const Input& x,
                           const T* grad_y, T* packed) {
  for_each_patches<T>(queue, c, x, [&](const PixelRange& range, const T* patches) {
    backward_weight_product(queue, c, range, grad_y, patches, packed);
  });
}

template <typename T>
void backward_input(const CudaQueue& queue, const ConvSizes& c, const T* grad_y, const T* packed,
                    T* grad_x) {
  if (c.s.is_depthwise()) {
    return launch_elements(queue, depthwise_backward_input_kernel<T>, c.s.input_size(), c, grad_y,
                           packed, grad_x);
  }
  if (cudnn_backward_input(queue, c.s, grad_y, packed, grad_x)) return;
  dense_backward_input(queue, c, grad_y, packed, grad_x);
}

}  // namespace
}  // namespace cuda

template <typename T>
void conv2d_forward(const CudaQueue& queue, const Conv2dShape& shape, const T* x, const T* w,
                    const T* bias, T* y) {
  if (shape.output_size() == 0) return;
  const cuda::ConvSizes c(shape);
  const cuda::PackedWeights<T> weights(queue, c);
  const T* packed = weights.pack(w);
  if (shape.is_depthwise()) {
    return cuda::launch_elements(queue, cuda::depthwise_forward_kernel<T>, shape.output_size(), c,
                                 x, packed, bias, y);
  }
  if (!cuda::cudnn_forward(queue, shape, x, packed, y)) {
    cuda::for_each_patches(queue, c, x, [&](const cuda::PixelRange& range, const T* patches) {
      cuda::forward_product(queue, c, range, patches, packed, y);
    });
  }
  if (bias == nullptr) return;
  run(queue,
      AddBias<T>{.rows = c.pixels(), .channels = shape.out_channels, .x = y, .bias = bias, .y = y});
}

template <typename T>
void conv2d_backward_input(const CudaQueue& queue, const Conv2dShape& shape, const T* grad_y,
                           const T* w, T* grad_x) {
  if (shape.input_size() == 0) return;
  const cuda::ConvSizes c(shape);
  const cuda::PackedWeights<T> weights(queue, c);
  cuda::backward_input(queue, c, grad_y, weights.pack(w), grad_x);
}

void conv2d_backward_input(const CudaQueue& queue, const Conv2dShape& shape, const float* grad_y,
                           const std::int8_t* w, std::int64_t scales, const float* scale,
                           float* grad_x) {
  if (shape.input_size() == 0) return;
  const cuda::ConvSizes c(shape);
  const cuda::PackedWeights<float> weights(queue, c, /*needs_memory=*/true);
  const cuda::WeightValues values{shape.weight_size() / scales, w, scale};
  cuda::backward_input(queue, c, grad_y, weights.pack(values), grad_x);
}

template <typename T>
void conv2d_backward_weight(const CudaQueue& queue, const Conv2dShape& shape, const T* x,
                            const T* grad_y, T* grad_w, T* grad_bias) {
  const cuda::ConvSizes c(shape);
  if (grad_bias != nullptr) {
    run(queue,
        ColumnSums<T>{
            .rows = c.pixels(), .channels = shape.out_channels, .x = grad_y, .sums = grad_bias});
  }
  if (shape.output_size() == 0) {
    return run(queue, Fill<T>{.n = shape.weight_size(), .value = 0, .y = grad_w});
  }
  const cuda::PackedWeights<T> weights(queue, c);
  T* packed = weights.target(grad_w);
  if (shape.is_depthwise()) {
    cuda::depthwise_backward_weight<T>(queue, c, cuda::Values<T>{x}, grad_y, packed);
  } else if (!cuda::cudnn_backward_weight(queue, shape, x, grad_y, packed)) {
    cuda::dense_backward_weight<T>(queue, c, x, grad_y, packed);
  }
  weights.unpack(nullptr, grad_w);
}

template <typename Code>
void conv2d_backward_weight(const CudaQueue& queue, const Conv2dShape& shape, const Code* x,
                            const float* x_scale, const std::int32_t* x_zero_point,
                            const float* grad_y, const std::uint8_t* mask, float* grad_w) {
  if (shape.output_size() == 0) {
    return run(queue, Fill<float>{.n = shape.weight_size(), .value = 0, .y = grad_w});
  }
  const cuda::ConvSizes c(shape);
  const cuda::PackedWeights<float> weights(queue, c);
  float* packed = weights.target(grad_w);
  const cuda::Activations<Code> values{x, x_scale, x_zero_point};
  const auto by_cudnn = [&] {
    const cuda::Scratch<float> floats(queue, cuda::kHasCudnn ? shape.input_size() : 0);
    if constexpr (cuda::kHasCudnn) {
      dequantize(queue, ChannelLayout::per_tensor(shape.input_size()), x, x_scale, x_zero_point,
                 floats.data());
    }
    return cuda::cudnn_backward_weight(queue, shape, static_cast<const float*>(floats.data()),
                                       grad_y, packed);
  };
  if (shape.is_depthwise()) {
    cuda::depthwise_backward_weight<float>(queue, c, values, grad_y, packed);
  } else if (!by_cudnn()) {
    cuda::dense_backward_weight<float>(queue, c, values, grad_y, packed);
  }
  weights.unpack(mask, grad_w);
}

#define STEELYARD_INSTANTIATE(T)                                                                   \
  template void conv2d_forward(const CudaQueue&, const Conv2dShape&, const T*, const T*, const T*, \
                               T*);                                                                \
  template void conv2d_backward_input(const CudaQueue&, const Conv2dShape&, const T*, const T*,    \
                                      T*);                                                         \
  template void conv2d_backward_weight(const CudaQueue&, const Conv2dShape&, const T*, const T*,   \
                                       T*, T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE
template void conv2d_backward_weight(const CudaQueue&, const Conv2dShape&, const std::int8_t*,
                                     const float*, const std::int32_t*, const float*,
                                     const std::uint8_t*, float*);
template void conv2d_backward_weight(const CudaQueue&, const Conv2dShape&, const std::uint8_t*,
                                     const float*, const std::int32_t*, const float*,
                                     const std::uint8_t*, float*);

}  // namespace steelyard::kernels
