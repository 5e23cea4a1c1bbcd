// The pixels of a depthwise product, whose sums a vector of channels finds at once. Private to this
// family's CPU products.
#pragma once

#include <algorithm>
#include <cstdint>

#include "steelyard/kernels/cpu/line_buffer.h"
#include "steelyard/kernels/cpu/taps.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/integer_product/pixel_blocks.h"

namespace steelyard::kernels::depthwise_products {

// How many pixels' channels, which lie side by side, fill a vector of so many channels: one, unless
// their windows are neighbours and they fill it exactly.
inline std::int64_t pixels_of_vector(const Conv2dShape& s, std::int64_t channels) {
  return s.stride_w == 1 && channels % s.in_channels == 0 ? channels / s.in_channels : 1;
}

// Calls use(first pixel, number of pixels, sums) for blocks of pixels, as multiply()
// (depthwise_products.h); sum(taps, n, acc) finds n sums from where each of `count_of_taps` taps
// reads, those of a window and any others. It may be given several pixels, `vector_pixels` at most.
template <typename Code, typename Use, typename Sum>
void multiply_taps(const IntegerConv2d<Code>& k, std::int64_t count_of_taps,
                   std::int64_t vector_pixels, const Use& use, const Sum& sum) {
  const Conv2dShape& s = k.shape;
  const std::int64_t channels = s.in_channels;
  // What taps in the padding read.
  const KeptVector<Code> zeros(static_cast<std::size_t>(channels * vector_pixels),
                               static_cast<Code>(*k.zero_point));
  const std::int64_t reach = (s.kernel_w - 1) * s.dilation_w, step = s.stride_w * channels;
  // The columns whose windows lie in the image.
  const std::int64_t first_whole = (s.pad_w + s.stride_w - 1) / s.stride_w;
  const std::int64_t last_whole =
      s.in_w + s.pad_w < reach + 1 ? -1 : (s.in_w - 1 - reach + s.pad_w) / s.stride_w;
  for_each_block(s, [&](std::int64_t begin, std::int64_t pixels) {
    KeptVector<const Code*> taps(static_cast<std::size_t>(count_of_taps), zeros.data());
    KeptVector<std::int64_t> steps(taps.size(), 0);
    use(begin, pixels, [&](std::int32_t* acc) {
      const std::int64_t end = begin + pixels;
      for (std::int64_t pixel = begin; pixel < end;) {
        for_each_tap(s, pixel, [&](std::int64_t tap, std::int64_t input) {
          taps[tap] = input < 0 ? zeros.data() : k.x + input * channels;
          steps[tap] = input < 0 ? 0 : step;
        });
        // This pixel and those whose taps lie some steps on.
        const std::int64_t column = pixel % s.out_w();
        std::int64_t alike = 1;
        if (column >= first_whole) {
          alike = std::clamp<std::int64_t>(last_whole + 1 - column, 1, end - pixel);
        }
        for (pixel += alike; alike > 0;) {
          const std::int64_t count = std::min(alike, vector_pixels);
          sum(taps.data(), count * channels, acc);
          for (std::int64_t i = 0; i < count_of_taps; ++i) taps[i] += count * steps[i];
          acc += count * channels;
          alike -= count;
        }
      }
    });
  });
}

}  // namespace steelyard::kernels::depthwise_products
