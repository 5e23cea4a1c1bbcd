// Windows over images, for the reference operations.
#pragma once

#include <array>
#include <cstdint>

#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {

// The windows of an operation over images: rows of taps, one for each output pixel, and padding
// that is left out.
struct Windows {
  std::int64_t in_h, in_w, channels;
  std::int64_t out_h, out_w;
  std::array<std::int64_t, 2> kernel, stride, padding, dilation;
  bool transposed = false;  // the output's pixels are moved over the input's, not the other way

  // Calls f(position of the tap in the kernel, index of the pixel in the image) for every tap of
  // the output pixel (oh, ow) that lies inside the image.
  template <typename F>
  void for_each_tap(std::int64_t oh, std::int64_t ow, const F& f) const {
    for (std::int64_t kh = 0; kh < kernel[0]; ++kh) {
      for (std::int64_t kw = 0; kw < kernel[1]; ++kw) {
        const std::int64_t h = source(0, oh, kh), w = source(1, ow, kw);
        if (h < 0 || h >= in_h || w < 0 || w >= in_w) continue;
        f(kh * kernel[1] + kw, h * in_w + w);
      }
    }
  }

 private:
  // The row (side 0) or column that tap k of the output's position `at` reads; outside of the image
  // where there is none.
  std::int64_t source(std::size_t side, std::int64_t at, std::int64_t k) const {
    if (!transposed) return at * stride[side] - padding[side] + k * dilation[side];
    const std::int64_t from = at + padding[side] - k * dilation[side];
    return from >= 0 && from % stride[side] == 0 ? from / stride[side] : -1;
  }
};

// The windows of a convolution with a kernel of this size.
inline Windows windows_of(const Operands& op, const std::array<std::int64_t, 2>& kernel,
                          const Conv2dGeometry& geometry) {
  const Shape& in = op.input_value(0).shape;
  const Shape& out = op.output_value().shape;
  return {in[0],
          in[1],
          in[2],
          out[0],
          out[1],
          kernel,
          geometry.stride,
          geometry.padding,
          geometry.dilation};
}

// The windows of a pool.
inline Windows windows_of(const Operands& op, const Pool2dGeometry& pool) {
  return windows_of(op, pool.kernel, {pool.stride, pool.padding, {1, 1}, 1});
}

// One window over the whole image.
inline Windows whole_image(const Operands& op) {
  const Shape& in = op.input_value(0).shape;
  return {in[0], in[1], in[2], 1, 1, {in[0], in[1]}, {1, 1}, {0, 0}, {1, 1}};
}

// Calls f(index of the output, image's first pixel, output pixel's row and column, channel).
template <typename F>
void for_each_window(const Operands& op, const Windows& windows, const F& f) {
  const std::int64_t images = op.input(0).dim(0);
#pragma omp parallel for
  for (std::int64_t row = 0; row < images * windows.out_h; ++row) {
    const std::int64_t image = row / windows.out_h * windows.in_h * windows.in_w;
    for (std::int64_t ow = 0; ow < windows.out_w; ++ow) {
      for (std::int64_t c = 0; c < windows.channels; ++c) {
        f((row * windows.out_w + ow) * windows.channels + c, image, row % windows.out_h, ow, c);
      }
    }
  }
}

}  // namespace steelyard::deploy
