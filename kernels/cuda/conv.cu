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

// Patches of the output pixels from `first` on. Element is what is copied at once, a value or
// several of neighbouring channels; the sizes count channels in elements.
template <typename Element>
__global__ void __launch_bounds__(kThreads)
    patches_kernel(std::int64_t n, ConvSizes c, std::int64_t first, const Element* x,
                   Element* patches) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const std::int64_t pixel = divide(i, c.columns);
  const std::int64_t place = divide(i - pixel * c.columns, c.channels);  // group * taps + tap
  const std::int64_t channel = i - pixel * c.columns - place * c.channels;
  const std::int64_t group = divide(place, c.taps);
  const std::int64_t input = input_pixel(c, first + pixel, place - group * c.taps);
  patches[i] = input < 0 ? Element{} : x[input * c.s.in_channels + group * c.channels + channel];
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
struct DepthwiseTerm {
  ConvSizes c;

  template <typename T>
  __device__ void operator()(std::int64_t tap, std::int64_t output, std::int64_t channel,
                             const T* x, const T* grad_y, const T*, const T*,
                             double (&sums)[1]) const {
    const std::int64_t input = input_pixel(c, output, tap);
    if (input < 0) return;
    sums[0] += static_cast<double>(x[input * c.s.in_channels + channel] *
                                   grad_y[output * c.s.in_channels + channel]);
  }
};

// Weights [O, C/groups, KH, KW] in the order of the patches' columns, [O, KH, KW, C/groups], or of
// depthwise kernels, [KH, KW, O]. Where both orders are one, the weights themselves.
template <typename T>
class PackedWeights {
 public:
  PackedWeights(const CudaQueue& queue, const ConvSizes& c)
      : queue_(queue),
        matrices_(c.s.is_depthwise() ? 1 : c.s.out_channels),
        channels_(c.s.is_depthwise() ? c.s.out_channels : c.channels),
        taps_(c.taps),
        packed_(queue, is_same() ? 0 : c.s.weight_size()) {}

  const T* pack(const T* w) const {
    if (is_same()) return w;
    nchw_to_nhwc(queue_, matrices_, taps_, channels_, w, packed_.data());
    return packed_.data();
  }
  // Where a gradient is packed for unpack_to(grad_w).
  T* target(T* grad_w) const { return is_same() ? grad_w : packed_.data(); }
  void unpack_to(T* grad_w) const {
    if (!is_same()) nhwc_to_nchw(queue_, matrices_, taps_, channels_, packed_.data(), grad_w);
  }

 private:
  bool is_same() const { return taps_ == 1 || channels_ == 1; }

  const CudaQueue& queue_;
  std::int64_t matrices_, channels_, taps_;
  Scratch<T> packed_;
};

// Fills patches of a range, 16 bytes at a time where x and the channels of a group allow it.
template <typename T>
void fill_patches(const CudaQueue& queue, const ConvSizes& c, const PixelRange& range, const T* x,
                  T* patches) {
  constexpr std::int64_t kValues = sizeof(uint4) / sizeof(T);
  const std::int64_t n = (range.end - range.begin) * c.columns;
  if (c.channels % kValues != 0 || !is_aligned(x, sizeof(uint4))) {
    return launch_elements(queue, patches_kernel<T>, n, c, range.begin, x, patches);
  }
  Conv2dShape wide = c.s;
  wide.in_channels /= kValues;
  launch_elements(queue, patches_kernel<uint4>, n / kValues, ConvSizes(wide), range.begin,
                  reinterpret_cast<const uint4*>(x), reinterpret_cast<uint4*>(patches));
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
template <typename T, typename Body>
void for_each_patches(const CudaQueue& queue, const ConvSizes& c, const T* x, Body&& body) {
  if (is_pointwise(c.s)) return body(PixelRange{0, c.pixels()}, x);
  const std::int64_t size = pixels_at_once<T>(queue, c);
  const Scratch<T> patches(queue, size * c.columns);
  for_each_range(c, size, [&](const PixelRange& range) {
    fill_patches(queue, c, range, x, patches.data());
    body(range, static_cast<const T*>(patches.data()));
  });
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

template <typename T>
void depthwise_backward_weight(const CudaQueue& queue, const ConvSizes& c, const T* x,
                               const T* grad_y, T* packed) {
  const PartialSums<1> sums(queue, make_row_chunks(c.taps, c.pixels(), c.s.in_channels));
  sums.add_up<T>(DepthwiseTerm{c}, x, grad_y, nullptr, nullptr);
  sums.launch_totals(column_totals_kernel<T>, packed);
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
  const T* packed = weights.pack(w);
  if (shape.is_depthwise()) {
    return cuda::launch_elements(queue, cuda::depthwise_backward_input_kernel<T>,
                                 shape.input_size(), c, grad_y, packed, grad_x);
  }
  if (cuda::cudnn_backward_input(queue, shape, grad_y, packed, grad_x)) return;
  cuda::dense_backward_input(queue, c, grad_y, packed, grad_x);
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
    cuda::depthwise_backward_weight(queue, c, x, grad_y, packed);
  } else if (!cuda::cudnn_backward_weight(queue, shape, x, grad_y, packed)) {
    cuda::for_each_patches(queue, c, x, [&](const cuda::PixelRange& range, const T* patches) {
      cuda::backward_weight_product(queue, c, range, grad_y, patches, packed);
    });
  }
  weights.unpack_to(grad_w);
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

}  // namespace steelyard::kernels
