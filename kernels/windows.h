// Windows that slide over images, NHWC: those of convolutions and of poolings.
#pragma once

#include <cstdint>

#include "steelyard/kernels/affine.h"

namespace steelyard::kernels {

// Weights are OIHW, [out, in / groups, kernel_h, kernel_w].
struct Conv2dShape {
  std::int64_t batch = 0;
  std::int64_t in_h = 0;
  std::int64_t in_w = 0;
  std::int64_t in_channels = 0;
  std::int64_t out_channels = 0;
  std::int64_t kernel_h = 1;
  std::int64_t kernel_w = 1;
  std::int64_t stride_h = 1;
  std::int64_t stride_w = 1;
  std::int64_t pad_h = 0;
  std::int64_t pad_w = 0;
  std::int64_t dilation_h = 1;
  std::int64_t dilation_w = 1;
  std::int64_t groups = 1;

  std::int64_t out_h() const {
    return (in_h + 2 * pad_h - dilation_h * (kernel_h - 1) - 1) / stride_h + 1;
  }
  std::int64_t out_w() const {
    return (in_w + 2 * pad_w - dilation_w * (kernel_w - 1) - 1) / stride_w + 1;
  }
  std::int64_t in_channels_per_group() const { return in_channels / groups; }
  std::int64_t out_channels_per_group() const { return out_channels / groups; }
  std::int64_t input_size() const { return batch * in_h * in_w * in_channels; }
  std::int64_t output_size() const { return batch * out_h() * out_w() * out_channels; }
  std::int64_t weight_size() const {
    return out_channels * in_channels_per_group() * kernel_h * kernel_w;
  }
  // The multiplications of a convolution; padding counts.
  std::int64_t multiply_adds() const { return batch * out_h() * out_w() * weight_size(); }
  // Every channel has a filter of its own.
  bool is_depthwise() const {
    return groups > 1 && groups == in_channels && groups == out_channels;
  }
  // No pixel has a neighbour.
  bool is_matrix_product() const {
    return in_h == 1 && in_w == 1 && kernel_h == 1 && kernel_w == 1 && pad_h == 0 && pad_w == 0 &&
           groups == 1;
  }
  bool operator==(const Conv2dShape&) const = default;
};

// The sizes of a pooling: those of a convolution whose every channel has windows of its own.
inline Conv2dShape per_channel(Conv2dShape s) {
  s.out_channels = s.groups = s.in_channels;
  return s;
}

// The part of a window that lies inside the image, as input rows and columns [begin, end).
struct Window {
  std::int64_t top = 0, left = 0;  // may be negative
  std::int64_t row_begin = 0, row_end = 0, column_begin = 0, column_end = 0;

  STEELYARD_HOST_DEVICE std::int64_t pixels() const {
    return (row_end - row_begin) * (column_end - column_begin);
  }
};

STEELYARD_HOST_DEVICE inline std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

// The window of an output pixel, for a kernel without dilation.
STEELYARD_HOST_DEVICE inline Window window_of(const Conv2dShape& s, std::int64_t oh,
                                              std::int64_t ow) {
  Window w;
  w.top = oh * s.stride_h - s.pad_h;
  w.left = ow * s.stride_w - s.pad_w;
  w.row_begin = w.top < 0 ? 0 : w.top;
  w.row_end = smaller(s.in_h, w.top + s.kernel_h);
  w.column_begin = w.left < 0 ? 0 : w.left;
  w.column_end = smaller(s.in_w, w.left + s.kernel_w);
  return w;
}

}  // namespace steelyard::kernels
