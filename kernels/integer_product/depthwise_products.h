// Exact products with one input and one output channel per group, by any instructions. Private to
// this family's CPU products.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "steelyard/kernels/cpu/taps.h"
#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/integer_product/packed_memory.h"
#include "steelyard/kernels/integer_product/pixel_blocks.h"

namespace steelyard::kernels::depthwise_products {

// What is multiplied: NEON has products of int16 in int32, which differences of codes fit.
#if defined(__aarch64__)
using Factor = std::int16_t;
#else
using Factor = std::int32_t;
#endif

// Where a tap of a pixel's window reads, from the first channel on.
template <typename Code>
struct Tap {
  const Code* x;
  const Factor* w;
};

// Taps that are added at once: sums that are loaded and stored for each tap wait for each other.
// NEON has the registers for a kernel of 3 x 3.
inline constexpr std::int64_t kTapsAtOnce = 3;
#if defined(__aarch64__)
inline constexpr std::int64_t kMostTapsAtOnce = 9;
#else
inline constexpr std::int64_t kMostTapsAtOnce = kTapsAtOnce;
#endif

template <bool kAdd, typename Code, std::size_t... i>
void add_taps(std::int64_t channels, const Tap<Code>* taps, Code zero_point, std::int32_t* sums,
              std::index_sequence<i...>) {
  const std::array<Tap<Code>, sizeof...(i)> of{taps[i]...};
  STEELYARD_VECTORIZE
  for (std::int64_t c = 0; c < channels; ++c) {
    sums[c] =
        ((kAdd ? sums[c] : 0) + ... + (static_cast<Factor>(of[i].x[c] - zero_point) * of[i].w[c]));
  }
}
// The sums of some taps, or what is there and these.
template <std::int64_t kTaps, typename Code>
void add_taps(bool add, std::int64_t channels, const Tap<Code>* taps, Code zero_point,
              std::int32_t* sums) {
  const auto all = std::make_index_sequence<kTaps>();
  if (add) return add_taps<true>(channels, taps, zero_point, sums, all);
  add_taps<false>(channels, taps, zero_point, sums, all);
}

// Calls use(first pixel, number of pixels, sums) for blocks of pixels; sums(acc) writes the sums of
// all channels.
template <typename Code, typename Use>
void multiply(const IntegerConv2d<Code>& k, const Use& use) {
  const Conv2dShape& shape = k.shape;
  const std::int64_t channels = shape.in_channels;
  const std::int64_t taps = shape.kernel_h * shape.kernel_w;
  const auto zero_point = static_cast<Code>(*k.zero_point);
  // The weights by tap; one tap more, of weights 0, fills up the last taps of a pixel.
  const auto fill = [&](const PackedMemory<Factor>& memory) {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        memory.weights[tap * channels + c] = k.w[c * taps + tap];
      }
      memory.weights[taps * channels + c] = 0;
    }
  };
  const Factor* const by_tap =
      packed_memory<Factor>(k.kept, 0, (taps + 1) * channels, fill).weights;
  const std::int64_t reach = (shape.kernel_w - 1) * shape.dilation_w;
  const std::int64_t step = shape.stride_w * channels;
  for_each_block(shape, [&](std::int64_t begin, std::int64_t pixels) {
    std::vector<Tap<Code>> inside;
    use(begin, pixels, [&](std::int32_t* acc) {
      std::int64_t column = begin % shape.out_w();
      bool was_whole = false;  // no column of the last pixel's window was in the padding
      for (std::int64_t pixel = begin; pixel < begin + pixels; ++pixel, acc += channels) {
        const std::int64_t left = column * shape.stride_w - shape.pad_w;
        const bool is_whole = left >= 0 && left + reach < shape.in_w;
        if (was_whole && is_whole && column > 0) {
          for (Tap<Code>& tap : inside) tap.x += step;
        } else {
          inside.clear();
          for_each_tap(shape, pixel, [&](std::int64_t tap, std::int64_t input) {
            if (input < 0) return;
            inside.push_back({k.x + input * channels, by_tap + tap * channels});
          });
          while (inside.empty() || std::ssize(inside) % kTapsAtOnce != 0) {
            inside.push_back({k.x, by_tap + taps * channels});
          }
        }
        was_whole = is_whole;
        column = column + 1 == shape.out_w() ? 0 : column + 1;
        std::int64_t i = 0;
        if constexpr (kMostTapsAtOnce > kTapsAtOnce) {
          for (; i + kMostTapsAtOnce <= std::ssize(inside); i += kMostTapsAtOnce) {
            add_taps<kMostTapsAtOnce>(i > 0, channels, inside.data() + i, zero_point, acc);
          }
        }
        for (; i < std::ssize(inside); i += kTapsAtOnce) {
          add_taps<kTapsAtOnce>(i > 0, channels, inside.data() + i, zero_point, acc);
        }
      }
    });
  });
}

}  // namespace steelyard::kernels::depthwise_products
