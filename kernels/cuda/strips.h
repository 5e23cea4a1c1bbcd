// Strips: a few neighbouring columns of a row of an NHWC array, which a thread computes together:
// what it reads for one is at hand for the next. Places inside an image have 32 bits, and the
// widths and strides of common windows are known to the compiler.
#pragma once

#include <type_traits>

#include "steelyard/kernels/cuda/grid.h"
#include "steelyard/kernels/cuda/neighbours.h"
#include "steelyard/kernels/windows.h"

namespace steelyard::kernels::cuda {

inline constexpr int kStrip = 4;  // columns

struct Strip {
  std::int32_t image, row;
  std::int32_t at;       // the how many-th of its row
  std::int32_t channel;  // in elements
};

// All strips of an array. An element is what is read and written at once, a value or several of
// neighbouring channels.
struct Strips {
  SmallDivisor channels;  // elements side by side
  SmallDivisor of_row;
  SmallDivisor rows;  // of an image
  std::int64_t count;

  LaunchShape shape() const { return {blocks_for(count), kThreads}; }
  // The running thread's, if it has one.
  __device__ bool has_strip() const { return element_index() < count; }
  __device__ Strip strip() const {
    const auto i = static_cast<std::int32_t>(element_index());
    const std::int32_t above = divide(i, channels);
    const std::int32_t line = divide(above, of_row);
    const std::int32_t image = divide(line, rows);
    return {image, line - image * rows, above - line * of_row, i - above * channels};
  }
};

inline Strips make_strips(std::int64_t images, std::int64_t rows, std::int64_t strips_of_row,
                          std::int64_t channels) {
  return {SmallDivisor(channels), SmallDivisor(strips_of_row), SmallDivisor(rows),
          images * rows * strips_of_row * channels};
}

// The sizes of windows that threads with 32 bits compute with; channels count elements.
struct SmallSizes {
  SmallDivisor out_h, stride_h, stride_w;
  std::int32_t channels;
  std::int32_t in_h, in_w, out_w, kernel_h, kernel_w, pad_h, pad_w, dilation_h;

  // Where an element of an image's row lies in the array of inputs, and in that of outputs.
  __device__ std::int64_t input_row(std::int32_t image, std::int32_t h) const {
    return std::int64_t{image * in_h + h} * (in_w * channels);
  }
  __device__ std::int64_t output_row(std::int32_t image, std::int32_t h) const {
    return std::int64_t{image * out_h + h} * (out_w * channels);
  }
};

inline SmallSizes small_sizes_of(const Conv2dShape& s) {
  const auto small = [](std::int64_t size) { return static_cast<std::int32_t>(size); };
  return {.out_h = SmallDivisor(s.out_h()),
          .stride_h = SmallDivisor(s.stride_h),
          .stride_w = SmallDivisor(s.stride_w),
          .channels = small(s.in_channels),
          .in_h = small(s.in_h),
          .in_w = small(s.in_w),
          .out_w = small(s.out_w()),
          .kernel_h = small(s.kernel_h),
          .kernel_w = small(s.kernel_w),
          .pad_h = small(s.pad_h),
          .pad_w = small(s.pad_w),
          .dilation_h = small(s.dilation_h)};
}

// Whether 32 bits hold every size and place that strips of such windows have: rows of an image in
// elements, pixels of the padded input, all strips.
inline bool has_small_sizes(const Conv2dShape& s) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  const std::int64_t height = s.in_h + 2 * s.pad_h + s.dilation_h * s.kernel_h + s.stride_h;
  const std::int64_t width = s.in_w + 2 * s.pad_w + s.dilation_w * s.kernel_w + s.stride_w;
  if (height >= kMost || width >= kMost || s.in_channels >= kMost) return false;
  const double elements = static_cast<double>(s.batch) * static_cast<double>(height) *
                          static_cast<double>(width) * static_cast<double>(s.in_channels);
  return static_cast<double>(width) * static_cast<double>(s.in_channels) < kMost &&
         elements < 2.0 * kMost;
}

// Columns of inputs under the windows of a strip.
template <int kernel_w, int stride>
inline constexpr int kStripInputs = (kStrip - 1) * stride + kernel_w;

// Calls f(width, stride) with integral constants where there is a kernel for the windows' width and
// horizontal stride; returns whether there was one.
template <class F>
bool with_strip_kernel(const Conv2dShape& s, const F& f) {
  if (s.dilation_w != 1 || !has_small_sizes(s)) return false;
  const auto with_stride = [&](auto width) {
    if (s.stride_w == 1) return f(width, std::integral_constant<int, 1>()), true;
    if (s.stride_w == 2) return f(width, std::integral_constant<int, 2>()), true;
    return false;
  };
  if (s.kernel_w == 3) return with_stride(std::integral_constant<int, 3>());
  if (s.kernel_w == 5) return with_stride(std::integral_constant<int, 5>());
  return false;
}

// values[p] = the element of column left + p of a row, as read(column) gives it; zero outside of
// the row.
template <int n, typename Element, class Read>
__device__ void load_columns(std::int32_t left, std::int32_t columns, const Read& read,
                             Element (&values)[n]) {
#pragma unroll
  for (int p = 0; p < n; ++p) {
    values[p] = Element{};
    if (left + p >= 0 && left + p < columns) values[p] = read(left + p);
  }
}

}  // namespace steelyard::kernels::cuda
