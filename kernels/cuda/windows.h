// Sizes of windows on a GPU, and which pixels they meet.
#pragma once

#include "steelyard/kernels/cuda/grid.h"
#include "steelyard/kernels/windows.h"

namespace steelyard::kernels::cuda {

// A convolution or pooling with the sizes that its kernels divide by.
struct ConvSizes {
  Conv2dShape s;
  Divisor out_h, out_w;
  Divisor channels, outputs;  // of a group
  Divisor taps;
  Divisor columns;
  Divisor in_h, in_w, in_channels, out_channels, kernel_w, stride_h, stride_w;  // those of s

  std::int64_t image_pixels() const { return out_h * out_w; }
  std::int64_t pixels() const { return s.batch * image_pixels(); }
  // Columns of one group.
  std::int64_t group_columns() const { return taps * channels; }
};

inline ConvSizes sizes_of(const Conv2dShape& s) {
  const std::int64_t taps = s.kernel_h * s.kernel_w;
  return {.s = s,
          .out_h = s.out_h(),
          .out_w = s.out_w(),
          .channels = s.in_channels_per_group(),
          .outputs = s.out_channels_per_group(),
          .taps = taps,
          .columns = taps * s.in_channels,
          .in_h = s.in_h,
          .in_w = s.in_w,
          .in_channels = s.in_channels,
          .out_channels = s.out_channels,
          .kernel_w = s.kernel_w,
          .stride_h = s.stride_h,
          .stride_w = s.stride_w};
}

// The patches are the input itself.
inline bool is_pointwise(const Conv2dShape& s) {
  return s.kernel_h == 1 && s.kernel_w == 1 && s.stride_h == 1 && s.stride_w == 1 && s.pad_h == 0 &&
         s.pad_w == 0;
}

// Where the window of an output pixel begins, in its image.
struct WindowPlace {
  std::int64_t image, top, left;
};

__device__ inline WindowPlace window_place(const ConvSizes& c, std::int64_t output) {
  const std::int64_t row = divide(output, c.out_w);
  const std::int64_t image = divide(row, c.out_h);
  return {image, (row - image * c.out_h) * c.s.stride_h - c.s.pad_h,
          (output - row * c.out_w) * c.s.stride_w - c.s.pad_w};
}

// The image's pixel under a tap, -1 in the padding.
__device__ inline std::int64_t pixel_under(const ConvSizes& c, const WindowPlace& window,
                                           std::int64_t tap) {
  const std::int64_t tap_row = divide(tap, c.kernel_w);
  const std::int64_t h = window.top + tap_row * c.s.dilation_h;
  const std::int64_t w = window.left + (tap - tap_row * c.s.kernel_w) * c.s.dilation_w;
  const bool inside = h >= 0 && h < c.s.in_h && w >= 0 && w < c.s.in_w;
  return inside ? h * c.s.in_w + w : -1;
}

// The pixel under a tap, counted through all images; -1 in the padding.
__device__ inline std::int64_t input_pixel(const ConvSizes& c, std::int64_t output,
                                           std::int64_t tap) {
  const WindowPlace window = window_place(c, output);
  const std::int64_t pixel = pixel_under(c, window, tap);
  return pixel < 0 ? -1 : window.image * c.s.in_h * c.s.in_w + pixel;
}

// Calls visit(output pixel, tap) for every window over an input pixel, in order of the taps.
template <typename Visit>
__device__ inline void for_each_window(const ConvSizes& c, std::int64_t input, Visit&& visit) {
  const std::int64_t row = divide(input, c.in_w);
  const std::int64_t image = divide(row, c.in_h);
  const std::int64_t bottom = row - image * c.s.in_h + c.s.pad_h;
  const std::int64_t right = input - row * c.s.in_w + c.s.pad_w;
  for (std::int64_t kh = 0; kh < c.s.kernel_h; ++kh) {
    const std::int64_t top = bottom - kh * c.s.dilation_h;
    if (top < 0) break;
    const std::int64_t oh = divide(top, c.stride_h);
    if (oh * c.s.stride_h != top || oh >= c.out_h) continue;
    for (std::int64_t kw = 0; kw < c.s.kernel_w; ++kw) {
      const std::int64_t left = right - kw * c.s.dilation_w;
      if (left < 0) break;
      const std::int64_t ow = divide(left, c.stride_w);
      if (ow * c.s.stride_w != left || ow >= c.out_w) continue;
      visit((image * c.out_h + oh) * c.out_w + ow, kh * c.s.kernel_w + kw);
    }
  }
}

}  // namespace steelyard::kernels::cuda
