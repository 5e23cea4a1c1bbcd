// Exact products with one input and one output channel per group, with AVX2. Private to this
// family's CPU products.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "steelyard/kernels/integer_product/depthwise_taps.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/integer_product/packed_memory.h"

namespace steelyard::kernels::depthwise_products {

// Channels of two vectors of sums. The codes of two taps are interleaved, so that vpmaddwd adds a
// channel's products.
inline constexpr std::int64_t kPairChannels = 16;

class PairWeights {
 public:
  // Sums begin with what the zero point takes from them.
  PairWeights(const Conv2dShape& s, const std::int8_t* w, std::int32_t zero_point,
              KeptWeights* kept)
      : pairs_((s.kernel_h * s.kernel_w + 1) / 2), pixels_(pixels_of_vector(s, kPairChannels)) {
    const std::int64_t blocks = (s.in_channels * pixels_ + kPairChannels - 1) / kPairChannels;
    memory_ = packed_memory<std::int16_t>(
        kept, blocks * kPairChannels, blocks * pairs_ * 2 * kPairChannels,
        [&](const Memory& memory) { fill(s, w, zero_point, blocks, memory); });
  }

  std::int64_t pairs() const { return pairs_; }
  std::int64_t pixels() const { return pixels_; }  // that one vector can take
  const std::int16_t* weights(std::int64_t block) const {
    return memory_.weights + block * pairs_ * 2 * kPairChannels;
  }
  const std::int32_t* first(std::int64_t block) const {
    return memory_.first + block * kPairChannels;
  }

 private:
  // [blocks of channels, pairs, channels, 2 taps], and [blocks, channels] of sums.
  using Memory = PackedMemory<std::int16_t>;

  void fill(const Conv2dShape& s, const std::int8_t* w, std::int32_t zero_point,
            std::int64_t blocks, const Memory& memory) const {
    const std::int64_t taps = s.kernel_h * s.kernel_w;
    std::fill_n(memory.weights, blocks * pairs_ * 2 * kPairChannels, std::int16_t{0});
    for (std::int64_t i = 0; i < blocks * kPairChannels; ++i) {
      const std::int64_t block = i / kPairChannels, channel = i % kPairChannels;
      std::int32_t sum = 0;
      for (std::int64_t tap = 0; tap < taps && i < s.in_channels * pixels_; ++tap) {
        const std::int8_t weight = w[i % s.in_channels * taps + tap];
        const std::int64_t pair = block * pairs_ + tap / 2;
        memory.weights[(pair * kPairChannels + channel) * 2 + tap % 2] = weight;
        sum += weight;
      }
      memory.first[i] = -sum * zero_point;
    }
  }

  std::int64_t pairs_, pixels_;
  Memory memory_;
};

// Up to 16 codes; others are 0.
inline __m128i load_codes(const void* codes, std::int64_t n) {
  if (n >= kPairChannels) return _mm_loadu_si128(static_cast<const __m128i*>(codes));
  if (n == 8) return _mm_loadl_epi64(static_cast<const __m128i*>(codes));
  __m128i some = _mm_setzero_si128();
  std::memcpy(&some, codes, static_cast<std::size_t>(n));
  return some;
}

// acc[c] = the sum of the products of c, for n channels that lie side by side in every tap.
template <typename Code>
void sum_pairs(const PairWeights& weights, const Code* const* taps, std::int64_t n,
               std::int32_t* acc) {
  const auto widened = [](__m128i codes) {
    return std::is_signed_v<Code> ? _mm256_cvtepi8_epi16(codes) : _mm256_cvtepu8_epi16(codes);
  };
  for (std::int64_t c = 0; c < n; c += kPairChannels) {
    const std::int64_t block = c / kPairChannels, left = n - c;
    const auto* w = reinterpret_cast<const __m256i*>(weights.weights(block));
    const auto* const first = reinterpret_cast<const __m256i*>(weights.first(block));
    __m256i low = _mm256_load_si256(first), high = _mm256_load_si256(first + 1);
    for (std::int64_t pair = 0; pair < weights.pairs(); ++pair, w += 2) {
      const __m128i a = load_codes(taps[2 * pair] + c, left);
      const __m128i b = load_codes(taps[2 * pair + 1] + c, left);
      const __m256i of_low = widened(_mm_unpacklo_epi8(a, b));
      const __m256i of_high = widened(_mm_unpackhi_epi8(a, b));
      low = _mm256_add_epi32(low, _mm256_madd_epi16(of_low, _mm256_load_si256(w)));
      high = _mm256_add_epi32(high, _mm256_madd_epi16(of_high, _mm256_load_si256(w + 1)));
    }
    const __m256i sums[2] = {low, high};
    if (left >= kPairChannels) {
      std::memcpy(acc + c, sums, sizeof sums);
    } else {
      std::memcpy(acc + c, sums, static_cast<std::size_t>(left) * sizeof(std::int32_t));
    }
  }
}

// As multiply() (depthwise_products.h).
template <typename Code, typename Use>
void multiply_pairs(const IntegerConv2d<Code>& k, const Use& use) {
  const PairWeights weights(k.shape, k.w, *k.zero_point, k.kept);
  multiply_taps(k, 2 * weights.pairs(), weights.pixels(), use,
                [&](const Code* const* taps, std::int64_t n, std::int32_t* acc) {
                  sum_pairs(weights, taps, n, acc);
                });
}

}  // namespace steelyard::kernels::depthwise_products
#endif
