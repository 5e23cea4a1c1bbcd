// What pooling computes for a window, host and device.
#pragma once

#include "steelyard/kernels/windows.h"

namespace steelyard::kernels {

// A greater value, or the first NaN.
template <typename T>
STEELYARD_HOST_DEVICE inline bool wins(T value, T best) {
  return (value > best) | ((value != value) & (best == best));
}

// What a window's sum is multiplied with for its average.
template <typename T>
STEELYARD_HOST_DEVICE inline T average_factor(const Conv2dShape& s, const Window& w,
                                              bool count_include_pad) {
  if (!count_include_pad) return T(1) / T(w.pixels());
  // As PyTorch: padding counts, what lies beyond it does not.
  const std::int64_t rows = smaller(s.in_h + s.pad_h, w.top + s.kernel_h) - w.top;
  const std::int64_t columns = smaller(s.in_w + s.pad_w, w.left + s.kernel_w) - w.left;
  return T(1) / T(rows * columns);
}

// Calls visit(input pixel within the image, offset inside the window) over a window.
template <class Visit>
STEELYARD_HOST_DEVICE void for_each_pixel(const Conv2dShape& s, const Window& w, Visit&& visit) {
  for (std::int64_t row = w.row_begin; row < w.row_end; ++row) {
    for (std::int64_t column = w.column_begin; column < w.column_end; ++column) {
      visit(row * s.in_w + column, (row - w.top) * s.kernel_w + column - w.left);
    }
  }
}

}  // namespace steelyard::kernels
