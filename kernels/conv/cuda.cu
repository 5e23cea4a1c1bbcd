// Convolutions as products with matrices of patches, at the precision of bfloat16 as products of
// windows (bf16_windows.h). Depthwise convolutions have one channel per
// group and run as sums of their own. In a build with cuDNN, cuDNN computes those of the others
// that it supports.
#include "steelyard/kernels/conv/bf16_windows.h"
#include "steelyard/kernels/conv/cudnn.h"
#include "steelyard/kernels/conv/depthwise_strips.h"
#include "steelyard/kernels/conv/patches.h"
#include "steelyard/kernels/cuda/gemm.h"
#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"

namespace steelyard::kernels {
namespace cuda {
namespace {

// The kernels of depthwise convolutions for all sizes; depthwise_strips.h has those of common ones.
// Element as there, weights are packed [taps, channels].
template <typename Element>
__global__ void __launch_bounds__(kThreads)
    depthwise_forward_kernel(std::int64_t n, ConvSizes c, const Element* x, const Element* packed,
                             const Element* bias, Element* y) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const std::int64_t pixel = divide(i, c.in_channels);
  const std::int64_t channel = i - pixel * c.s.in_channels;
  Element sum = bias == nullptr ? Element{} : bias[channel];
  for (std::int64_t tap = 0; tap < c.taps; ++tap) {
    const std::int64_t input = input_pixel(c, pixel, tap);
    if (input < 0) continue;
    sum += x[input * c.s.in_channels + channel] * packed[tap * c.s.in_channels + channel];
  }
  y[i] = sum;
}

template <typename Element>
__global__ void __launch_bounds__(kThreads)
    depthwise_backward_input_kernel(std::int64_t n, ConvSizes c, const Element* grad_y,
                                    const Element* packed, Element* grad_x) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const std::int64_t pixel = divide(i, c.in_channels);
  const std::int64_t channel = i - pixel * c.s.in_channels;
  Element sum{};
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

  __device__ Sums<1> operator()(std::int64_t tap, std::int64_t output, std::int64_t channel) const {
    const std::int64_t input = input_pixel(c, output, tap);
    if (input < 0) return {};
    return {{static_cast<double>(x(input * c.s.in_channels + channel) *
                                 grad_y[output * c.s.in_channels + channel])}};
  }
};

template <typename Element>
void depthwise_forward(const CudaQueue& queue, const ConvSizes& c, const Element* x,
                       const Element* packed, const Element* bias, Element* y) {
  const Conv2dShape& s = c.s;  // of elements
  const auto strips = [&](auto width, auto stride) {
    const Strips all =
        make_strips(s.batch, c.out_h, (c.out_w + kStrip - 1) / kStrip, s.in_channels);
    launch(depthwise_forward_strips<width, stride, Element>, all.shape(), stream_of(queue), all,
           small_sizes_of(s), x, packed, bias, y);
  };
  if (with_strip_kernel(s, strips)) return;
  launch_elements(queue, depthwise_forward_kernel<Element>, c.pixels() * s.in_channels, c, x,
                  packed, bias, y);
}

template <typename Element>
void depthwise_backward_input(const CudaQueue& queue, const ConvSizes& c, const Element* grad_y,
                              const Element* packed, Element* grad_x) {
  const Conv2dShape& s = c.s;
  const auto strips = [&](auto width, auto stride) {
    const std::int64_t columns = s.in_w + s.pad_w % stride;
    const Strips all = make_strips(s.batch, s.in_h, (columns + kStrip - 1) / kStrip, s.in_channels);
    launch(depthwise_backward_input_strips<width, stride, Element>, all.shape(), stream_of(queue),
           all, small_sizes_of(s), grad_y, packed, grad_x);
  };
  if (with_strip_kernel(s, strips)) return;
  launch_elements(queue, depthwise_backward_input_kernel<Element>, s.input_size(), c, grad_y,
                  packed, grad_x);
}

template <typename T>
const Neighbours<T, 4>* fours(const T* values) {
  return reinterpret_cast<const Neighbours<T, 4>*>(values);
}
template <typename T>
Neighbours<T, 4>* fours(T* values) {
  return reinterpret_cast<Neighbours<T, 4>*>(values);
}

// f(sizes, arrays...) with four channels as one element where all arrays, which may be null, and
// the sizes allow it.
template <class F, typename... T>
void with_wide_elements(const ConvSizes& c, const F& f, T*... arrays) {
  if (c.s.in_channels % 4 != 0 || !begin_with_neighbours<4>(arrays...)) return f(c, arrays...);
  f(with_wide_channels(c, 4), fours(arrays)...);
}

template <int width, int stride, typename T, typename Element, typename Input>
void sum_tap_rows(const CudaQueue& queue, const ConvSizes& c, const Input& x, const Element* grad_y,
                  T* packed) {
  using Term = TapRowTerm<width, stride, T, Element, Input>;
  // One row of an image is work enough for a thread, eight neighbours are 128 bytes of gradients,
  // and these blocks run at once on a large GPU.
  const RowChunks rows = make_row_chunks(c.s.kernel_h, c.s.batch * c.out_h, c.s.in_channels,
                                         {.blocks = 512, .rows_of_thread = 1, .width = 8});
  sum_columns<Term::kSums>(queue, rows, Term{small_sizes_of(c.s), x, grad_y},
                           StoreTapRow<width, Term::kNeighbours, T>{packed});
}

// What reads four neighbours of an input at once.
template <typename T>
Values<Neighbours<T, 4>> wide(const Values<T>& x) {
  return {fours(x.values)};
}
template <typename Code>
FourActivations<Code> wide(const Activations<Code>& x) {
  return {x};
}
template <typename T>
const T* array_of(const Values<T>& x) {
  return x.values;
}
template <typename Code>
const Code* array_of(const Activations<Code>& x) {
  return x.codes;
}

template <typename T, typename Input>
void depthwise_backward_weight(const CudaQueue& queue, const ConvSizes& c, const Input& x,
                               const T* grad_y, T* packed) {
  const auto strips = [&](auto width, auto stride) {
    if (c.s.in_channels % 4 == 0 && begin_with_neighbours<4>(array_of(x), grad_y)) {
      sum_tap_rows<width, stride>(queue, with_wide_channels(c, 4), wide(x), fours(grad_y), packed);
    } else {
      sum_tap_rows<width, stride>(queue, c, x, grad_y, packed);
    }
  };
  if (with_strip_kernel(c.s, strips)) return;
  sum_columns<1>(queue, make_row_chunks(c.taps, c.pixels(), c.s.in_channels),
                 DepthwiseTerm<T, Input>{c, x, grad_y}, StoreColumnSums<T>{packed});
}

// y = patches * w^T, a batch for every group.
template <typename T>
void forward_product(const CudaQueue& queue, const ConvSizes& c, const PixelRange& range,
                     const T* patches, const T* packed, T* y) {
  gemm(queue,
       {.m = range.end - range.begin,
        .n = c.outputs,
        .k = c.group_columns(),
        .transpose_b = true,
        .row_stride_a = c.columns,
        .row_stride_c = c.s.out_channels,
        .batches = c.s.groups,
        .batch_stride_a = c.group_columns(),
        .batch_stride_b = c.outputs * c.group_columns(),
        .batch_stride_c = c.outputs},
       patches, packed, y + range.begin * c.s.out_channels);
}

// The patches' gradient = grad_y * w.
template <typename T>
void backward_input_product(const CudaQueue& queue, const ConvSizes& c, const PixelRange& range,
                            const T* grad_y, const T* packed, T* patches) {
  gemm(queue,
       {.m = range.end - range.begin,
        .n = c.group_columns(),
        .k = c.outputs,
        .row_stride_a = c.s.out_channels,
        .row_stride_c = c.columns,
        .batches = c.s.groups,
        .batch_stride_a = c.outputs,
        .batch_stride_b = c.outputs * c.group_columns(),
        .batch_stride_c = c.group_columns()},
       grad_y + range.begin * c.s.out_channels, packed, patches);
}

// grad_w = grad_y^T * patches, added to that of earlier ranges.
template <typename T>
void backward_weight_product(const CudaQueue& queue, const ConvSizes& c, const PixelRange& range,
                             const T* grad_y, const T* patches, T* packed) {
  gemm(queue,
       {.m = c.outputs,
        .n = c.group_columns(),
        .k = range.end - range.begin,
        .transpose_a = true,
        .accumulate = range.begin > 0,
        .row_stride_a = c.s.out_channels,
        .row_stride_b = c.columns,
        .batches = c.s.groups,
        .batch_stride_a = c.outputs,
        .batch_stride_b = c.group_columns(),
        .batch_stride_c = c.outputs * c.group_columns()},
       grad_y + range.begin * c.s.out_channels, patches, packed);
}

// The weights of k are packed.
template <typename T>
void backward_input(const CudaQueue& queue, const ConvSizes& c, const Conv2dBackwardInput<T>& k) {
  if (c.s.is_depthwise()) {
    return with_wide_elements(
        c,
        [&](const ConvSizes& sizes, const auto* grad_y, const auto* packed, auto* grad_x) {
          depthwise_backward_input(queue, sizes, grad_y, packed, grad_x);
        },
        k.grad_y, k.w, k.grad_x);
  }
  if (cudnn_computes(queue, k)) return;
  if (is_pointwise(c.s)) {
    return backward_input_product(queue, c, PixelRange{0, c.pixels()}, k.grad_y, k.w, k.grad_x);
  }
  const std::int64_t size = pixels_at_once<T>(queue, c);
  const Scratch<T> patches(queue, size * c.columns);
  for_each_range(c, size, [&](const PixelRange& range) {
    backward_input_product(queue, c, range, k.grad_y, k.w, patches.data());
    gather<T>(queue, c, range, patches.data(), k.grad_x);
  });
}

// x is an argument of for_each_patches().
template <typename T, typename Input>
void dense_backward_weight(const CudaQueue& queue, const ConvSizes& c, const Input& x,
                           const T* grad_y, T* packed) {
  for_each_patches<T>(queue, c, x, [&](const PixelRange& range, const T* patches) {
    backward_weight_product(queue, c, range, grad_y, patches, packed);
  });
}

// Whether a float convolution is computed by windows. Products with pixels are cuBLAS's: rounding
// them beforehand would cost more memory traffic than it saves.
bool are_float_windows(const CudaQueue& queue, const Conv2dShape& s, std::int64_t inputs,
                       std::int64_t outputs) {
  return !is_pointwise(s) && are_bf16_windows(queue, s, inputs, outputs);
}

// Whether products of windows computed it, but for the bias.
template <typename T>
bool windows_compute(const CudaQueue& queue, const Conv2d<T>& k) {
  if constexpr (std::is_same_v<T, float>) {
    if (!are_float_windows(queue, k.shape, 4, 1)) return false;
    const Bf16Values x(queue, k.shape.input_size(), k.x);
    Bf16Windows(queue, k.shape).forward(x.data(), Values<float>{k.w}, k.y);
    return true;
  }
  return false;
}
template <typename T>
bool windows_compute(const CudaQueue& queue, const Conv2dBackwardInput<T>& k) {
  if constexpr (std::is_same_v<T, float>) {
    if (!are_float_windows(queue, k.shape, 1, 8)) return false;
    const Bf16Values grad(queue, k.shape.output_size(), k.grad_y);
    Bf16Windows(queue, k.shape).backward_input(grad.data(), Values<float>{k.w}, k.grad_x);
    return true;
  }
  return false;
}
template <typename T>
bool windows_compute(const CudaQueue& queue, const Conv2dBackwardWeight<T>& k) {
  if constexpr (std::is_same_v<T, float>) {
    if (!are_float_windows(queue, k.shape, 8, 8)) return false;
    const Bf16Values x(queue, k.shape.input_size(), k.x);
    const Bf16Values grad(queue, k.shape.output_size(), k.grad_y);
    Bf16Windows(queue, k.shape).backward_weight(x.data(), grad.data(), k.grad_w);
    return true;
  }
  return false;
}

}  // namespace
}  // namespace cuda

template <typename T>
void compute(const CudaQueue& queue, const Conv2d<T>& given) {
  Conv2d<T> k = given;
  if (k.shape.output_size() == 0) return;
  const cuda::ConvSizes c = cuda::sizes_of(k.shape);
  if (!cuda::windows_compute(queue, k)) {
    const cuda::PackedWeights<T> weights(queue, c);
    k.w = weights.pack(k.w);
    if (k.shape.is_depthwise()) {
      return cuda::with_wide_elements(
          c,
          [&](const cuda::ConvSizes& sizes, const auto* x, const auto* packed, const auto* bias,
              auto* y) { cuda::depthwise_forward(queue, sizes, x, packed, bias, y); },
          k.x, k.w, k.bias, k.y);
    }
    if (!cuda::cudnn_computes(queue, k)) {
      cuda::for_each_patches(queue, c, k.x, [&](const cuda::PixelRange& range, const T* patches) {
        cuda::forward_product(queue, c, range, patches, k.w, k.y);
      });
    }
  }
  if (k.bias == nullptr) return;
  run(queue, AddBias<T>{.rows = c.pixels(),
                        .channels = k.shape.out_channels,
                        .x = k.y,
                        .bias = k.bias,
                        .y = k.y});
}

template <typename T>
void compute(const CudaQueue& queue, const Conv2dBackwardInput<T>& given) {
  Conv2dBackwardInput<T> k = given;
  if (k.shape.input_size() == 0 || cuda::windows_compute(queue, k)) return;
  const cuda::ConvSizes c = cuda::sizes_of(k.shape);
  const cuda::PackedWeights<T> weights(queue, c);
  k.w = weights.pack(k.w);
  cuda::backward_input(queue, c, k);
}

template <typename Gradient, typename Result>
void compute(const CudaQueue& queue, const CodesBackwardInput<Gradient, Result>& k) {
  const std::int64_t n = k.shape.input_size();
  if (n == 0) return;
  const cuda::WeightValues values{k.shape.weight_size() / k.scales, k.w, k.scale};
  if (cuda::are_bf16_gradients(queue, k.shape, 1)) {
    const cuda::Bf16Values grad(queue, k.shape.output_size(), k.grad_y);
    return cuda::Bf16Windows(queue, k.shape).backward_input(grad.data(), values, k.grad_x);
  }
  const cuda::ConvSizes c = cuda::sizes_of(k.shape);
  const cuda::PackedWeights<float> weights(queue, c, /*needs_memory=*/true);
  const cuda::FloatValues grad(queue, k.shape.output_size(), k.grad_y);
  const float* const packed = weights.pack(values);
  const auto compute_to = [&](float* grad_x) {
    cuda::backward_input(queue, c,
                         Conv2dBackwardInput<float>{k.shape, grad.data(), packed, grad_x});
  };
  if constexpr (std::is_same_v<Result, float>) {
    compute_to(k.grad_x);
  } else {
    const cuda::Scratch<float> grad_x(queue, n);
    compute_to(grad_x.data());
    run(queue, Convert<float, BFloat16>{.n = n, .x = grad_x.data(), .y = k.grad_x});
  }
}

template <typename T>
void compute(const CudaQueue& queue, const Conv2dBackwardWeight<T>& given) {
  Conv2dBackwardWeight<T> k = given;
  const cuda::ConvSizes c = cuda::sizes_of(k.shape);
  if (k.shape.output_size() == 0) {
    return run(queue, Fill<T>{.n = k.shape.weight_size(), .value = 0, .y = k.grad_w});
  }
  if (cuda::windows_compute(queue, k)) return;
  const cuda::PackedWeights<T> weights(queue, c);
  k.grad_w = weights.target(k.grad_w);
  if (k.shape.is_depthwise()) {
    cuda::depthwise_backward_weight<T>(queue, c, cuda::Values<T>{k.x}, k.grad_y, k.grad_w);
  } else if (!cuda::cudnn_computes(queue, k)) {
    cuda::dense_backward_weight<T>(queue, c, k.x, k.grad_y, k.grad_w);
  }
  weights.unpack(nullptr, given.grad_w);
}

// Emitted by kernels/fake_quantize.
extern template void run(const CudaQueue&, const Dequantize<float, std::int8_t>&);
extern template void run(const CudaQueue&, const Dequantize<float, std::uint8_t>&);

template <typename Code, typename Gradient>
void compute(const CudaQueue& queue, const CodesBackwardWeight<Code, Gradient>& k) {
  if (k.shape.output_size() == 0) {
    return run(queue, Fill<float>{.n = k.shape.weight_size(), .value = 0, .y = k.grad_w});
  }
  if (cuda::are_bf16_gradients(queue, k.shape, 1)) {
    const cuda::Bf16Values grad(queue, k.shape.output_size(), k.grad_y);
    return cuda::Bf16Windows(queue, k.shape)
        .backward_weight(cuda::CodeEights<Code>{k.x, k.zero_point}, k.scale, grad.data(), k.mask,
                         k.grad_w);
  }
  const cuda::ConvSizes c = cuda::sizes_of(k.shape);
  const cuda::PackedWeights<float> weights(queue, c);
  const cuda::FloatValues grad(queue, k.shape.output_size(), k.grad_y);
  float* packed = weights.target(k.grad_w);
  const cuda::Activations<Code> values{k.x, k.scale, k.zero_point};
  const auto by_cudnn = [&] {
    if constexpr (cuda::kHasCudnn) {
      const cuda::Scratch<float> floats(queue, k.shape.input_size());
      run(queue, Dequantize<float, Code>{.layout = ChannelLayout::per_tensor(k.shape.input_size()),
                                         .codes = k.x,
                                         .scale = k.scale,
                                         .zero_point = k.zero_point,
                                         .y = floats.data()});
      return cuda::cudnn_computes(
          queue, Conv2dBackwardWeight<float>{k.shape, floats.data(), grad.data(), packed});
    }
    return false;
  };
  if (k.shape.is_depthwise()) {
    cuda::depthwise_backward_weight<float>(queue, c, values, grad.data(), packed);
  } else if (!by_cudnn()) {
    cuda::dense_backward_weight<float>(queue, c, values, grad.data(), packed);
  }
  weights.unpack(k.mask, k.grad_w);
}

template struct CudaKernels<ConvKernels>;
template struct CudaKernels<ConvOfCodesKernels>;

}  // namespace steelyard::kernels
