// The taps of a convolution's windows.
#pragma once

#include <cstdint>

#include "steelyard/kernels/windows.h"

namespace steelyard::kernels {

// Calls visit(kernel tap, input pixel or -1 in the padding) for the window of an output pixel.
template <class Visit>
void for_each_tap(const Conv2dShape& s, std::int64_t pixel, Visit&& visit) {
  const std::int64_t row = pixel / s.out_w(), image = row / s.out_h();
  const std::int64_t top = row % s.out_h() * s.stride_h - s.pad_h;
  const std::int64_t left = pixel % s.out_w() * s.stride_w - s.pad_w;
  for (std::int64_t kh = 0; kh < s.kernel_h; ++kh) {
    const std::int64_t h = top + kh * s.dilation_h;
    for (std::int64_t kw = 0; kw < s.kernel_w; ++kw) {
      const std::int64_t w = left + kw * s.dilation_w;
      const bool inside = h >= 0 && h < s.in_h && w >= 0 && w < s.in_w;
      visit(kh * s.kernel_w + kw, inside ? (image * s.in_h + h) * s.in_w + w : -1);
    }
  }
}

}  // namespace steelyard::kernels
