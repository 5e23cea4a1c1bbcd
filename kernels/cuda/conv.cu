// Convolutions as products with matrices of patches: a row for every output pixel, a column for
// every (group, kernel tap, channel of the group), which reads and writes neighbouring channels
// together. Depthwise convolutions have one channel per group and run as sums of their own. Where
// the build has cuDNN, it computes what it can of the others.
#include "kernels/conv.h"

#include <algorithm>

#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/conv_cudnn.h"
#include "kernels/cuda/gemm.h"
#include "kernels/elementwise.h"
#include "kernels/fake_quantize.h"

namespace steelyard::kernels {
namespace cuda {
namespace {

// A convolution with the sizes that its kernels divide by.
struct ConvSizes {
  explicit ConvSizes(const Conv2dShape& shape)
      : s(shape),
        out_h(shape.out_h()),
        out_w(shape.out_w()),
        channels(shape.in_channels_per_group()),
        taps(shape.kernel_h * shape.kernel_w),
        columns(taps * shape.in_channels) {}

  std::int64_t image_pixels() const { return out_h * out_w; }
  std::int64_t pixels() const { return s.batch * image_pixels(); }
  std::int64_t out_channels() const { return s.out_channels_per_group(); }
  // Columns of one group.
  std::int64_t group_columns() const { return taps * channels; }

  Conv2dShape s;
  std::int64_t out_h, out_w;
  std::int64_t channels;  // of a group's input
  std::int64_t taps;
  std::int64_t columns;
};

// The patches are the input itself.
bool is_pointwise(const Conv2dShape& s) {
  return s.kernel_h == 1 && s.kernel_w == 1 && s.stride_h == 1 && s.stride_w == 1 && s.pad_h == 0 &&
         s.pad_w == 0;
}

// The input pixel under a tap of an output pixel, -1 in the padding.
__device__ inline std::int64_t input_pixel(const ConvSizes& c, std::int64_t output,
                                           std::int64_t tap) {
  const std::int64_t row = divide(output, c.out_w);
  const std::int64_t image = divide(row, c.out_h);
  const std::int64_t tap_row = divide(tap, c.s.kernel_w);
  const std::int64_t h =
      (row - image * c.out_h) * c.s.stride_h - c.s.pad_h + tap_row * c.s.dilation_h;
  const std::int64_t w = (output - row * c.out_w) * c.s.stride_w - c.s.pad_w +
                         (tap - tap_row * c.s.kernel_w) * c.s.dilation_w;
  const bool inside = h >= 0 && h < c.s.in_h && w >= 0 && w < c.s.in_w;
  return inside ? (image * c.s.in_h + h) * c.s.in_w + w : -1;
}

// Calls visit(output pixel, tap) for every window over an input pixel, in order of the taps.
template <typename Visit>
__device__ inline void for_each_window(const ConvSizes& c, std::int64_t input, Visit&& visit) {
  const std::int64_t row = divide(input, c.s.in_w);
  const std::int64_t image = divide(row, c.s.in_h);
  const std::int64_t bottom = row - image * c.s.in_h + c.s.pad_h;
  const std::int64_t right = input - row * c.s.in_w + c.s.pad_w;
  for (std::int64_t kh = 0; kh < c.s.kernel_h; ++kh) {
    const std::int64_t top = bottom - kh * c.s.dilation_h;
    if (top < 0) break;
    const std::int64_t oh = divide(top, c.s.stride_h);
    if (oh * c.s.stride_h != top || oh >= c.out_h) continue;
    for (std::int64_t kw = 0; kw < c.s.kernel_w; ++kw) {
      const std::int64_t left = right - kw * c.s.dilation_w;
      if (left < 0) break;
      const std::int64_t ow = divide(left, c.s.stride_w);
      if (ow * c.s.stride_w != left || ow >= c.out_w) continue;
      visit((image * c.out_h + oh) * c.out_w + ow, kh * c.s.kernel_w + kw);
    }
  }
}

// An array's elements as they are.
template <typename Element>
struct Values {
  const Element* values;

  template <typename F>
  void each_pointer(const F& f) const {
    f(values);
  }
  __device__ Element operator()(std::int64_t i) const { return values[i]; }
};

// What codes with one scale and zero point stand for.
template <typename Code>
struct Activations {
  const Code* codes;
  const float* scale;
  const std::int32_t* zero_point;

  template <typename F>
  void each_pointer(const F& f) const {
    f(codes);
    f(scale);
    f(zero_point);
  }
  __device__ float operator()(std::int64_t i) const {
    return dequantize_code(static_cast<float>(codes[i]), static_cast<float>(*zero_point), *scale);
  }
};

// Four neighbours of them.
struct alignas(16) FourFloats {
  float values[4];
};
template <typename Code>
struct FourActivations {
  Activations<Code> all;

  template <typename F>
  void each_pointer(const F& f) const {
    all.each_pointer(f);
  }
  __device__ FourFloats operator()(std::int64_t i) const {
    return {{all(4 * i), all(4 * i + 1), all(4 * i + 2), all(4 * i + 3)}};
  }
};

// What codes of weights stand for, `sharers` neighbours having a scale.
struct WeightValues {
  std::int64_t sharers;
  const std::int8_t* codes;
  const float* scales;

  template <typename F>
  void each_pointer(const F& f) const {
    f(codes);
    f(scales);
  }
  __device__ float operator()(std::int64_t i) const {
    return dequantize_code(static_cast<float>(codes[i]), 0.0F, scales[divide(i, sharers)]);
  }
};

// Patches of the output pixels from `first` on. Element is what is copied at once, a value or
// several of neighbouring channels; the sizes count channels in elements.
template <typename Element, typename Input>
__global__ void __launch_bounds__(kThreads)
    patches_kernel(std::int64_t n, ConvSizes c, std::int64_t first, Input x, Element* patches) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const std::int64_t pixel = divide(i, c.columns);
  const std::int64_t place = divide(i - pixel * c.columns, c.channels);  // group * taps + tap
  const std::int64_t channel = i - pixel * c.columns - place * c.channels;
  const std::int64_t group = divide(place, c.taps);
  const std::int64_t input = input_pixel(c, first + pixel, place - group * c.taps);
  patches[i] = input < 0 ? Element{} : x(input * c.s.in_channels + group * c.channels + channel);
}

// The output pixels [begin, end).
struct PixelRange {
  std::int64_t begin, end;
};

// Gradients of input elements from `first` on: the sums of the patches' elements that read them.
// An image whose first patches were in an earlier range adds to what it has.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(std::int64_t n, ConvSizes c, std::int64_t first, PixelRange range,
                  const T* patches, T* grad_x) {
  if (element_index() >= n) return;
  const std::int64_t i = first + element_index();
  const std::int64_t pixel = divide(i, c.s.in_channels);
  const std::int64_t group = divide(i - pixel * c.s.in_channels, c.channels);
  const std::int64_t channel = i - pixel * c.s.in_channels - group * c.channels;
  const T* column = patches + group * c.taps * c.channels + channel;
  const std::int64_t image = divide(pixel, c.s.in_h * c.s.in_w);
  T sum = range.begin > image * c.out_h * c.out_w ? grad_x[i] : T(0);
  for_each_window(c, pixel, [&](std::int64_t output, std::int64_t tap) {
    if (output < range.begin || output >= range.end) return;
    sum += column[(output - range.begin) * c.columns + tap * c.channels];
  });
  grad_x[i] = sum;
}

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
template <typename Input>
struct DepthwiseTerm {
  ConvSizes c;
  Input x;

  template <typename F>
  void each_pointer(const F& f) const {
    x.each_pointer(f);
  }
  template <typename T>
  __device__ void operator()(std::int64_t tap, std::int64_t output, std::int64_t channel,
                             const T* grad_y, const T*, const T*, const T*,
                             double (&sums)[1]) const {
    const std::int64_t input = input_pixel(c, output, tap);
    if (input < 0) return;
    sums[0] += static_cast<double>(x(input * c.s.in_channels + channel) *
                                   grad_y[output * c.s.in_channels + channel]);
  }
};

// Weights [O, C/groups, KH, KW] are packed in the order of the patches' columns, [O, KH, KW,
// C/groups], or of depthwise kernels, [KH, KW, O]: both swap the last two of [matrices, channels,
// taps].
struct WeightOrder {
  explicit WeightOrder(const ConvSizes& c)
      : channels(c.s.is_depthwise() ? c.s.out_channels : c.channels), taps(c.taps) {}

  bool is_same() const { return taps == 1 || channels == 1; }
  // The place of packed weight i before, and the other way round.
  __device__ std::int64_t plain(std::int64_t i) const { return swapped(i, taps, channels); }
  __device__ std::int64_t packed(std::int64_t i) const { return swapped(i, channels, taps); }

  std::int64_t channels, taps;

 private:
  // From [.., rows, columns] to [.., columns, rows].
  __device__ static std::int64_t swapped(std::int64_t i, std::int64_t rows, std::int64_t columns) {
    const std::int64_t line = divide(i, columns);
    const std::int64_t matrix = divide(line, rows);
    return (matrix * columns + (i - line * columns)) * rows + (line - matrix * rows);
  }
};

template <typename T, typename Weights>
__global__ void pack_kernel(std::int64_t n, WeightOrder order, Weights w, T* packed) {
  const std::int64_t i = element_index();
  if (i < n) packed[i] = w(order.plain(i));
}

// 0 where the packed mask, which may be null, has no one.
template <typename T>
__global__ void unpack_kernel(std::int64_t n, WeightOrder order, const T* packed,
                              const std::uint8_t* mask, T* w) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const bool passes = mask == nullptr || (mask[i / 8] >> (i % 8) & 1) != 0;
  w[i] = pass_inside(passes, packed[order.packed(i)]);
}

// Packed weights in memory of their own, unless they are those of the caller.
template <typename T>
class PackedWeights {
 public:
  PackedWeights(const CudaQueue& queue, const ConvSizes& c, bool needs_memory = false)
      : queue_(queue),
        order_(c),
        size_(c.s.weight_size()),
        has_memory_(needs_memory || !order_.is_same()),
        memory_(queue, has_memory_ ? size_ : 0) {}

  template <typename Weights>
  const T* pack(const Weights& w) const {
    launch_elements(queue_, pack_kernel<T, Weights>, size_, order_, w, memory_.data());
    return memory_.data();
  }
  const T* pack(const T* w) const { return has_memory_ ? pack(Values<T>{w}) : w; }
  // Where a gradient is packed for unpack().
  T* target(T* grad_w) const { return has_memory_ ? memory_.data() : grad_w; }
  void unpack(const std::uint8_t* mask, T* grad_w) const {
    if (!has_memory_ && mask == nullptr) return;
    launch_elements(queue_, unpack_kernel<T>, size_, order_, static_cast<const T*>(target(grad_w)),
                    mask, grad_w);
  }

 private:
  const CudaQueue& queue_;
  WeightOrder order_;
  std::int64_t size_;
  bool has_memory_;
  Scratch<T> memory_;
};

template <typename T, typename Input>
void fill_patches(const CudaQueue& queue, const ConvSizes& c, const PixelRange& range,
                  const Input& x, T* patches) {
  launch_elements(queue, patches_kernel<T, Input>, (range.end - range.begin) * c.columns, c,
                  range.begin, x, patches);
}

// A convolution with `values` channels as one.
inline ConvSizes with_wide_channels(const ConvSizes& c, std::int64_t values) {
  Conv2dShape wide = c.s;
  wide.in_channels /= values;
  return ConvSizes(wide);
}

// The same 16 bytes at a time where x and the channels of a group allow it.
template <typename T>
void fill_patches(const CudaQueue& queue, const ConvSizes& c, const PixelRange& range,
                  const Values<T>& x, T* patches) {
  constexpr std::int64_t kValues = sizeof(uint4) / sizeof(T);
  if (c.channels % kValues != 0 || !is_aligned(x.values, sizeof(uint4))) {
    return fill_patches<T, Values<T>>(queue, c, range, x, patches);
  }
  fill_patches<uint4, Values<uint4>>(queue, with_wide_channels(c, kValues), range,
                                     {reinterpret_cast<const uint4*>(x.values)},
                                     reinterpret_cast<uint4*>(patches));
}

template <typename Code>
void fill_patches(const CudaQueue& queue, const ConvSizes& c, const PixelRange& range,
                  const Activations<Code>& x, float* patches) {
  if (c.channels % 4 != 0) {
    return fill_patches<float, Activations<Code>>(queue, c, range, x, patches);
  }
  fill_patches<FourFloats, FourActivations<Code>>(queue, with_wide_channels(c, 4), range, {x},
                                                  reinterpret_cast<FourFloats*>(patches));
}

// Output pixels whose patches are in memory together: whole images where one fits.
template <typename T>
std::int64_t pixels_at_once(const CudaQueue& queue, const ConvSizes& c) {
  const std::int64_t row_bytes = std::max<std::int64_t>(1, c.columns * std::int64_t{sizeof(T)});
  const std::int64_t most = std::max<std::int64_t>(1, queue.part_bytes / row_bytes);
  const std::int64_t images = most / c.image_pixels();
  return std::min(images > 0 ? images * c.image_pixels() : most, c.pixels());
}

template <typename Body>
void for_each_range(const ConvSizes& c, std::int64_t size, Body&& body) {
  for (std::int64_t begin = 0; begin < c.pixels(); begin += size) {
    body(PixelRange{begin, std::min(begin + size, c.pixels())});
  }
}

// Calls body(range, patches) until all output pixels had their turn.
template <typename T, typename Input, typename Body>
void for_each_patches(const CudaQueue& queue, const ConvSizes& c, const Input& x, Body&& body) {
  const std::int64_t size = pixels_at_once<T>(queue, c);
  const Scratch<T> patches(queue, size * c.columns);
  for_each_range(c, size, [&](const PixelRange& range) {
    fill_patches(queue, c, range, x, patches.data());
    body(range, static_cast<const T*>(patches.data()));
  });
}
template <typename T, typename Body>
void for_each_patches(const CudaQueue& queue, const ConvSizes& c, const T* x, Body&& body) {
  if (is_pointwise(c.s)) return body(PixelRange{0, c.pixels()}, x);
  for_each_patches<T>(queue, c, Values<T>{x}, body);
}

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
void gather(const CudaQueue& queue, const ConvSizes& c, const PixelRange& range, const T* patches,
            T* grad_x) {
  const std::int64_t image_size = c.s.in_h * c.s.in_w * c.s.in_channels;
  const std::int64_t first = range.begin / c.image_pixels();
  const std::int64_t last = (range.end - 1) / c.image_pixels();
  launch_elements(queue, gather_kernel<T>, (last - first + 1) * image_size, c, first * image_size,
                  range, patches, grad_x);
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
  sum_columns<1, T>(queue, make_row_chunks(c.taps, c.pixels(), c.s.in_channels),
                    DepthwiseTerm<Input>{c, x}, StoreSum<T>{packed}, grad_y, nullptr, nullptr,
                    nullptr);
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
  if (bias != nullptr) add_bias(queue, c.pixels(), shape.out_channels, y, bias, y);
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
  if (grad_bias != nullptr) column_sums(queue, c.pixels(), shape.out_channels, grad_y, grad_bias);
  if (shape.output_size() == 0) return fill(queue, shape.weight_size(), T(0), grad_w);
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
  if (shape.output_size() == 0) return fill(queue, shape.weight_size(), 0.0F, grad_w);
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
