// A thread for every element, or for four neighbouring channels: forward of the output, backward of
// the input, which gathers from the windows over it in their order.
#include "steelyard/kernels/pool/pool.h"

#include <type_traits>

#include "steelyard/kernels/cuda/neighbours.h"
#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/cuda/windows.h"

namespace steelyard::kernels {
namespace cuda {
namespace {

// An element of an NHWC array, or the first of several channels.
struct Place {
  std::int64_t image, h, w, channel;
};

__device__ inline Place place_of(std::int64_t i, const Divisor& height, const Divisor& width,
                                 const Divisor& channels) {
  const std::int64_t pixel = divide(i, channels);
  const std::int64_t row = divide(pixel, width);
  const std::int64_t image = divide(row, height);
  return {image, row - image * height, pixel - row * width, i - pixel * channels};
}

// Calls visit(input element, offset inside the window) over the window of an output element.
template <typename Visit>
__device__ inline void for_each_input(const ConvSizes& p, const Place& output, const Window& w,
                                      Visit&& visit) {
  const std::int64_t image = output.image * p.s.in_h * p.s.in_w;
  for_each_pixel(p.s, w, [&](std::int64_t pixel, std::int64_t offset) {
    visit((image + pixel) * p.s.in_channels + output.channel, offset);
  });
}

// Outputs [first, last] along an axis whose windows hold an input at `at`.
struct Windows {
  std::int64_t first, last;
};

__device__ inline Windows windows_over(std::int64_t at, std::int64_t pad, std::int64_t kernel,
                                       const Divisor& stride, std::int64_t outputs) {
  const std::int64_t reach = at + pad - kernel;  // the last start that misses the input
  const std::int64_t first = reach < 0 ? 0 : divide(reach, stride) + 1;
  return {first, smaller(divide(at + pad, stride), outputs - 1)};
}

// Calls visit(output element, row of the output, column of the output) for the windows that hold
// an input element.
template <typename Visit>
__device__ inline void for_each_output(const ConvSizes& p, const Place& input, Visit&& visit) {
  const Windows rows = windows_over(input.h, p.s.pad_h, p.s.kernel_h, p.stride_h, p.out_h);
  const Windows columns = windows_over(input.w, p.s.pad_w, p.s.kernel_w, p.stride_w, p.out_w);
  for (std::int64_t oh = rows.first; oh <= rows.last; ++oh) {
    for (std::int64_t ow = columns.first; ow <= columns.last; ++ow) {
      visit(((input.image * p.out_h + oh) * p.out_w + ow) * p.s.in_channels + input.channel, oh,
            ow);
    }
  }
}

template <int n, typename T>
__device__ void compute_channels(std::int64_t i, const ConvSizes& p, const MaxPool<T>& k) {
  const Place output = place_of(i, p.out_h, p.out_w, p.in_channels);
  Neighbours<T, n> best{};
  Neighbours<std::uint16_t, n> winner{};
  bool first = true;
  for_each_input(p, output, window_of(p.s, output.h, output.w),
                 [&](std::int64_t at, std::int64_t offset) {
                   const Neighbours<T, n> x = load<n>(k.x + at);
#pragma unroll
                   for (int c = 0; c < n; ++c) {
                     if (!first && !wins(x.of[c], best.of[c])) continue;
                     best.of[c] = x.of[c];
                     winner.of[c] = static_cast<std::uint16_t>(offset);
                   }
                   first = false;
                 });
  store(best, k.y + i);
  if (k.argmax != nullptr) store(winner, k.argmax + i);
}

template <int n, typename T>
__device__ void compute_channels(std::int64_t i, const ConvSizes& p, const MaxPoolBackward<T>& k) {
  const Place input = place_of(i, p.in_h, p.in_w, p.in_channels);
  Neighbours<T, n> sum{};
  for_each_output(p, input, [&](std::int64_t at, std::int64_t oh, std::int64_t ow) {
    const std::int64_t row = input.h + p.s.pad_h - oh * p.s.stride_h;
    const std::int64_t column = input.w + p.s.pad_w - ow * p.s.stride_w;
    const auto argmax = load<n>(k.argmax + at);
    const auto grad_y = load<n>(k.grad_y + at);
#pragma unroll
    for (int c = 0; c < n; ++c) {
      if (argmax.of[c] == row * p.s.kernel_w + column) sum.of[c] += grad_y.of[c];
    }
  });
  store(sum, k.grad_x + i);
}

template <int n, typename Code>
__device__ void compute_channels(std::int64_t i, const ConvSizes& p,
                                 const IntegerWindowSums<Code>& k) {
  const Place output = place_of(i, p.out_h, p.out_w, p.in_channels);
  const std::int32_t zero = *k.zero_point;
  Neighbours<std::int32_t, n> sum{};
  for_each_input(p, output, window_of(p.s, output.h, output.w), [&](std::int64_t at, std::int64_t) {
    const Neighbours<Code, n> x = load<n>(k.x + at);
#pragma unroll
    for (int c = 0; c < n; ++c) sum.of[c] += x.of[c] - zero;
  });
  store(sum, k.sums + i);
}

template <int n, typename T>
__device__ void compute_channels(std::int64_t i, const ConvSizes& p, const AveragePool<T>& k) {
  const Place output = place_of(i, p.out_h, p.out_w, p.in_channels);
  const Window window = window_of(p.s, output.h, output.w);
  const T factor = average_factor<T>(p.s, window, k.count_include_pad);
  Neighbours<T, n> sum{};
  for_each_input(p, output, window,
                 [&](std::int64_t at, std::int64_t) { sum += load<n>(k.x + at); });
#pragma unroll
  for (int c = 0; c < n; ++c) sum.of[c] *= factor;
  store(sum, k.y + i);
}

template <int n, typename T>
__device__ void compute_channels(std::int64_t i, const ConvSizes& p,
                                 const AveragePoolBackward<T>& k) {
  const Place input = place_of(i, p.in_h, p.in_w, p.in_channels);
  Neighbours<T, n> sum{};
  for_each_output(p, input, [&](std::int64_t at, std::int64_t oh, std::int64_t ow) {
    const T factor = average_factor<T>(p.s, window_of(p.s, oh, ow), k.count_include_pad);
    const Neighbours<T, n> grad_y = load<n>(k.grad_y + at);
#pragma unroll
    for (int c = 0; c < n; ++c) sum.of[c] += grad_y.of[c] * factor;
  });
  store(sum, k.grad_x + i);
}

// A thread computes `n` elements, one of the `parts`.
template <int n, class K>
__global__ void __launch_bounds__(kThreads) window_kernel(std::int64_t parts, ConvSizes p, K k) {
  const std::int64_t part = element_index();
  if (part < parts) compute_channels<n>(part * n, p, k);
}

// Channels of a thread where pixels have a multiple of them.
template <class K>
inline constexpr int kMostAtOnce = 8;
template <>
inline constexpr int kMostAtOnce<MaxPool<std::int8_t>> = 16;
template <>
inline constexpr int kMostAtOnce<MaxPool<std::uint8_t>> = 16;

// Whether n channels can be read and written at once.
template <int n, typename T>
bool takes_neighbours(const MaxPool<T>& k) {
  return begin_with_neighbours<n>(k.x, k.y, k.argmax);
}
template <int n, typename T>
bool takes_neighbours(const MaxPoolBackward<T>& k) {
  return begin_with_neighbours<n>(k.argmax, k.grad_y, k.grad_x);
}
template <int n, typename Code>
bool takes_neighbours(const IntegerWindowSums<Code>& k) {
  return begin_with_neighbours<n>(k.x, k.sums);
}
template <int n, typename T>
bool takes_neighbours(const AveragePool<T>& k) {
  return begin_with_neighbours<n>(k.x, k.y);
}
template <int n, typename T>
bool takes_neighbours(const AveragePoolBackward<T>& k) {
  return begin_with_neighbours<n>(k.grad_y, k.grad_x);
}

// The batches are the images, the rows their pixels.
template <typename T>
struct PixelTerm {
  GlobalAveragePool<T> k;

  __device__ Sums<1> operator()(std::int64_t image, std::int64_t pixel,
                                std::int64_t channel) const {
    return {{static_cast<double>(k.x[(image * k.pixels + pixel) * k.channels + channel])}};
  }
};

template <typename T>
struct StoreMean {
  T* y;

  __device__ void operator()(const RowChunks& rows, std::int64_t at,
                             const double (&sums)[1]) const {
    y[at] = static_cast<T>(sums[0] / static_cast<double>(rows.rows));
  }
};

// The terms of codes less their zero point, whose sums are integers: exact in double.
template <typename Code>
struct PixelCode {
  IntegerWindowSums<Code> k;
  std::int64_t pixels;

  __device__ Sums<1> operator()(std::int64_t image, std::int64_t pixel,
                                std::int64_t channel) const {
    const Code code = k.x[(image * pixels + pixel) * k.shape.in_channels + channel];
    return {{static_cast<double>(code - *k.zero_point)}};
  }
};

// One window for each image, which is too long for a thread.
inline bool is_global(const Conv2dShape& s) {
  return s.kernel_h == s.in_h && s.kernel_w == s.in_w && s.pad_h == 0 && s.pad_w == 0 &&
         s.in_h * s.in_w >= 64;
}

}  // namespace
}  // namespace cuda

// What is written: gradients of the input by a backward pass, the output by any other.
template <class K>
requires requires(const K& k) { k.shape; }
void compute(const CudaQueue& queue, const K& k) {
  if constexpr (requires { k.sums; }) {
    if (cuda::is_global(k.shape)) {
      const std::int64_t pixels = k.shape.in_h * k.shape.in_w;
      return cuda::sum_columns<1>(queue,
                                  cuda::make_row_chunks(k.shape.batch, pixels, k.shape.in_channels),
                                  cuda::PixelCode<std::remove_cvref_t<decltype(*k.x)>>{k, pixels},
                                  cuda::StoreColumnSums<std::int32_t>{k.sums});
    }
  }
  std::int64_t elements = k.shape.output_size();
  if constexpr (requires { k.grad_x; }) elements = k.shape.input_size();
  const cuda::ConvSizes sizes = cuda::sizes_of(k.shape);
  // Finding the windows takes a thread longer than a few channels more.
  const auto launch_with = [&](auto at_once) {
    constexpr int kAtOnce = decltype(at_once)::value;
    if (k.shape.in_channels % kAtOnce != 0 || !cuda::takes_neighbours<kAtOnce>(k)) return false;
    cuda::launch_elements(queue, cuda::window_kernel<kAtOnce, K>, elements / kAtOnce, sizes, k);
    return true;
  };
  launch_with(std::integral_constant<int, cuda::kMostAtOnce<K>>()) ||
      launch_with(std::integral_constant<int, 4>()) ||
      launch_with(std::integral_constant<int, 1>());
}

template <typename T>
void compute(const CudaQueue& queue, const GlobalAveragePool<T>& k) {
  cuda::sum_columns<1>(queue, cuda::make_row_chunks(k.batch, k.pixels, k.channels),
                       cuda::PixelTerm<T>{k}, cuda::StoreMean<T>{k.y});
}

template <typename T>
void compute(const CudaQueue& queue, const RowSums<T>& k) {
  cuda::sum_columns<1>(queue, cuda::make_row_chunks(k.batch, k.rows, k.columns),
                       cuda::PixelTerm<T>{{k.batch, k.rows, k.columns, k.x, nullptr}},
                       cuda::StoreColumnSums<T>{k.sums});
}

template struct CudaKernels<PoolKernels>;
template struct CudaKernels<RowSumsKernels>;

}  // namespace steelyard::kernels
