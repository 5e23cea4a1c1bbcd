// Sizes and windows of pooling, host and device.
#pragma once

#include <cstdint>

#include "steelyard/kernels/affine.h"

namespace steelyard::kernels {

struct Pool2dShape {
  std::int64_t batch = 0;
  std::int64_t in_h = 0;
  std::int64_t in_w = 0;
  std::int64_t channels = 0;
  std::int64_t kernel_h = 1;
  std::int64_t kernel_w = 1;
  std::int64_t stride_h = 1;
  std::int64_t stride_w = 1;
  std::int64_t pad_h = 0;
  std::int64_t pad_w = 0;

  std::int64_t out_h() const { return (in_h + 2 * pad_h - kernel_h) / stride_h + 1; }
  std::int64_t out_w() const { return (in_w + 2 * pad_w - kernel_w) / stride_w + 1; }
  std::int64_t input_size() const { return batch * in_h * in_w * channels; }
  std::int64_t output_size() const { return batch * out_h() * out_w() * channels; }
};

// The part of a window that lies inside the image, as input rows and columns [begin, end).
struct PoolWindow {
  std::int64_t top = 0, left = 0;  // may be negative
  std::int64_t row_begin = 0, row_end = 0, column_begin = 0, column_end = 0;

  STEELYARD_HOST_DEVICE std::int64_t pixels() const {
    return (row_end - row_begin) * (column_end - column_begin);
  }
};

STEELYARD_HOST_DEVICE inline std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

STEELYARD_HOST_DEVICE inline PoolWindow window_of(const Pool2dShape& s, std::int64_t oh,
                                                  std::int64_t ow) {
  PoolWindow w;
  w.top = oh * s.stride_h - s.pad_h;
  w.left = ow * s.stride_w - s.pad_w;
  w.row_begin = w.top < 0 ? 0 : w.top;
  w.row_end = smaller(s.in_h, w.top + s.kernel_h);
  w.column_begin = w.left < 0 ? 0 : w.left;
  w.column_end = smaller(s.in_w, w.left + s.kernel_w);
  return w;
}

// A greater value, or the first NaN.
template <typename T>
STEELYARD_HOST_DEVICE inline bool wins(T value, T best) {
  return (value > best) | ((value != value) & (best == best));
}

// What a window's sum is multiplied with for its average.
template <typename T>
STEELYARD_HOST_DEVICE inline T average_factor(const Pool2dShape& s, const PoolWindow& w,
                                              bool count_include_pad) {
  if (!count_include_pad) return T(1) / T(w.pixels());
  // As PyTorch: padding counts, what lies beyond it does not.
  const std::int64_t rows = smaller(s.in_h + s.pad_h, w.top + s.kernel_h) - w.top;
  const std::int64_t columns = smaller(s.in_w + s.pad_w, w.left + s.kernel_w) - w.left;
  return T(1) / T(rows * columns);
}

}  // namespace steelyard::kernels
