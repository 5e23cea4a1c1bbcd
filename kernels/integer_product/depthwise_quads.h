// Exact products with one input and one output channel per group, with VNNI. Private to this
// family's CPU products.
#pragma once

#if defined(__AVX512BW__)
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "steelyard/kernels/cpu/each_index.h"
#include "steelyard/kernels/integer_product/depthwise_taps.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/integer_product/packed_memory.h"
#include "steelyard/kernels/integer_product/quad_sums.h"

namespace steelyard::kernels::depthwise_products {

// Codes of a vector, one of each channel. Four taps are interleaved, so that a lane has those of a
// channel; lane `lane` of interleaved vector `vector` is that of channel_of().
inline constexpr std::int64_t kQuadChannels = 64;
constexpr std::int64_t channel_of(std::int64_t vector, std::int64_t lane) {
  return lane / 4 * 16 + vector * 4 + lane % 4;
}

// Where few channels fill a part of a vector, it takes those of neighbouring pixels, too.
class QuadWeights {
 public:
  QuadWeights(const Conv2dShape& s, const std::int8_t* w, std::int32_t zero, KeptWeights* kept)
      : quads_((s.kernel_h * s.kernel_w + 3) / 4), pixels_(pixels_of_vector(s, kQuadChannels)) {
    const std::int64_t vectors = (s.in_channels * pixels_ + kQuadChannels - 1) / kQuadChannels;
    memory_ = packed_memory<std::int8_t>(
        kept, vectors * kQuadChannels, vectors * quads_ * 4 * kQuadChannels,
        [&](const Memory& memory) { fill(s, w, zero, vectors, memory); });
  }

  std::int64_t quads() const { return quads_; }
  std::int64_t pixels() const { return pixels_; }  // that one vector can take
  const std::int8_t* weights(std::int64_t block) const {
    return memory_.weights + block * quads_ * 4 * kQuadChannels;
  }
  const std::int32_t* first(std::int64_t block) const {
    return memory_.first + block * kQuadChannels;
  }

 private:
  // [blocks of 64 channels, quads, vectors, lanes, 4 taps], and [blocks, vectors, lanes] of sums.
  using Memory = PackedMemory<std::int8_t>;

  void fill(const Conv2dShape& s, const std::int8_t* w, std::int32_t zero, std::int64_t vectors,
            const Memory& memory) const {
    const std::int64_t taps = s.kernel_h * s.kernel_w;
    std::fill_n(memory.weights, vectors * quads_ * 4 * kQuadChannels, std::int8_t{0});
    std::fill_n(memory.first, vectors * kQuadChannels, 0);
    for (std::int64_t i = 0; i < vectors * kQuadChannels; ++i) {
      const std::int64_t block = i / kQuadChannels, at = i % kQuadChannels;
      const std::int64_t place = block * kQuadChannels + channel_of(at / 16, at % 16);
      if (place >= s.in_channels * pixels_) continue;
      const std::int8_t* const of_channel = w + place % s.in_channels * taps;
      std::uint32_t sum = 0;  // wraps as the sums do
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::int64_t quad = block * quads_ + tap / 4;
        memory.weights[(quad * kQuadChannels + at) * 4 + tap % 4] = of_channel[tap];
        sum += static_cast<std::uint32_t>(of_channel[tap]);
      }
      memory.first[i] = static_cast<std::int32_t>(0U - sum * static_cast<std::uint32_t>(zero));
    }
  }

  std::int64_t quads_, pixels_;
  Memory memory_;
};

// Four vectors of the lanes of channel_of() as [64] in order, where the mask has a one.
inline void store_in_order(__m512i (&s)[4], __mmask64 mask, std::int32_t* to) {
  const __m512i a = _mm512_shuffle_i32x4(s[0], s[1], 0x44),
                b = _mm512_shuffle_i32x4(s[2], s[3], 0x44);
  const __m512i c = _mm512_shuffle_i32x4(s[0], s[1], 0xEE),
                d = _mm512_shuffle_i32x4(s[2], s[3], 0xEE);
  s[0] = _mm512_shuffle_i32x4(a, b, 0x88);
  s[1] = _mm512_shuffle_i32x4(a, b, 0xDD);
  s[2] = _mm512_shuffle_i32x4(c, d, 0x88);
  s[3] = _mm512_shuffle_i32x4(c, d, 0xDD);
  for_each_index<4>([&](auto i) {
    _mm512_mask_storeu_epi32(to + 16 * i, static_cast<__mmask16>(mask >> (16 * i)), s[i]);
  });
}

// acc[c] = the sum of the products of c, for n channels that lie side by side in every tap.
template <typename Code>
void sum_quads(const QuadWeights& weights, const Code* const* taps, std::int64_t n,
               std::int32_t* acc) {
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(std::numeric_limits<Code>::min()));
  for (std::int64_t c = 0; c < n; c += kQuadChannels) {
    const __mmask64 mask = n - c < kQuadChannels ? (__mmask64{1} << (n - c)) - 1 : ~__mmask64{0};
    const std::int64_t block = c / kQuadChannels;
    const std::int8_t* w = weights.weights(block);
    __m512i sums[4];
    for_each_index<4>(
        [&](auto i) { sums[i] = QuadSums::load_sums(weights.first(block) + 16 * i); });
    for (std::int64_t quad = 0; quad < weights.quads(); ++quad, w += 4 * kQuadChannels) {
      __m512i x[4];
      for_each_index<4>([&](auto i) {
        x[i] = _mm512_maskz_loadu_epi8(mask, taps[4 * quad + i] + c);
        if constexpr (std::is_signed_v<Code>) x[i] = _mm512_xor_si512(x[i], sign);
      });
      const __m512i low01 = _mm512_unpacklo_epi8(x[0], x[1]),
                    high01 = _mm512_unpackhi_epi8(x[0], x[1]);
      const __m512i low23 = _mm512_unpacklo_epi8(x[2], x[3]),
                    high23 = _mm512_unpackhi_epi8(x[2], x[3]);
      const __m512i of[4] = {
          _mm512_unpacklo_epi16(low01, low23), _mm512_unpackhi_epi16(low01, low23),
          _mm512_unpacklo_epi16(high01, high23), _mm512_unpackhi_epi16(high01, high23)};
      for_each_index<4>([&](auto i) {
        sums[i] =
            QuadSums::add_products(sums[i], of[i], QuadSums::load_weights(w + kQuadChannels * i));
      });
    }
    store_in_order(sums, mask, acc + c);
  }
}

// As multiply() (depthwise_products.h), only where has_vnni() (kernels/instructions.h).
template <typename Code, typename Use>
void multiply_quads(const IntegerConv2d<Code>& k, const Use& use) {
  const QuadWeights weights(k.shape, k.w, *k.zero_point - std::numeric_limits<Code>::min(), k.kept);
  multiply_taps(k, 4 * weights.quads(), weights.pixels(), use,
                [&](const Code* const* taps, std::int64_t n, std::int32_t* acc) {
                  sum_quads(weights, taps, n, acc);
                });
}

}  // namespace steelyard::kernels::depthwise_products
#endif
