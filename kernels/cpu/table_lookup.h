// Looks bytes up in tables of 256 entries, held in registers where the level's permutations reach.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <cstdint>

#include "steelyard/kernels/cpu/vectorize.h"

namespace steelyard::kernels {

#if defined(__AVX512BW__)
// The bytes at 32 indices of 16 bits.
class ByteTable {
 public:
  static constexpr std::int64_t kBytes = 64;  // of an operator()

  explicit ByteTable(const std::uint8_t* table) {
    for (int k = 0; k < 4; ++k) quarters_[k] = _mm512_loadu_si512(table + 64 * k);
  }
  __m512i operator()(__m512i bytes) const {
    const __m512i even = at(_mm512_and_si512(bytes, _mm512_set1_epi16(0xFF)));
    const __m512i odd = at(_mm512_srli_epi16(bytes, 8));
    return _mm512_mask_blend_epi8(0xAAAAAAAAAAAAAAAAU, even, _mm512_slli_epi16(odd, 8));
  }

 private:
  // The low bytes of the result count. Permutations find the pair that an entry is in.
  __m512i at(__m512i indices) const {
    const __m512i pairs = _mm512_srli_epi16(indices, 1);
    const __m512i found =
        _mm512_mask_blend_epi16(_mm512_test_epi16_mask(indices, _mm512_set1_epi16(0x80)),
                                _mm512_permutex2var_epi16(quarters_[0], pairs, quarters_[1]),
                                _mm512_permutex2var_epi16(quarters_[2], pairs, quarters_[3]));
    const __m512i second = _mm512_and_si512(indices, _mm512_set1_epi16(1));
    return _mm512_srlv_epi16(found, _mm512_slli_epi16(second, 3));
  }

  __m512i quarters_[4];
};
#elif defined(__AVX2__)
class ByteTable {
 public:
  static constexpr std::int64_t kBytes = 32;

  explicit ByteTable(const std::uint8_t* table) {
    for (int k = 0; k < 16; ++k) {
      const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table + 16 * k));
      parts_[k] = _mm256_broadcastsi128_si256(part);
    }
  }
  // A shuffle writes 0 where an index is 128 or more, as saturation makes all outside of a part.
  __m256i operator()(__m256i bytes) const {
    __m256i found = _mm256_setzero_si256();
    for (const __m256i& part : parts_) {
      const __m256i indices = _mm256_adds_epu8(bytes, _mm256_set1_epi8(0x70));
      found = _mm256_or_si256(found, _mm256_shuffle_epi8(part, indices));
      bytes = _mm256_sub_epi8(bytes, _mm256_set1_epi8(16));
    }
    return found;
  }

 private:
  __m256i parts_[16];
};
#endif

// y[i] = table[x[i]] for every i in [0, n), where y does not overlap the table.
inline void look_up(std::int64_t n, const std::uint8_t* x, const std::uint8_t* table,
                    std::uint8_t* y) {
  std::int64_t i = 0;
#if defined(__AVX2__)
  const ByteTable entries(table);
  for (; i + ByteTable::kBytes <= n; i += ByteTable::kBytes) {
#if defined(__AVX512BW__)
    _mm512_storeu_si512(y + i, entries(_mm512_loadu_si512(x + i)));
#else
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + i), entries(bytes));
#endif
  }
#endif
  for (; i < n; ++i) y[i] = table[x[i]];
}

#if defined(__AVX512F__)
inline void look_up(std::int64_t n, const std::uint8_t* x, const float* table, float* y) {
  constexpr std::int64_t kLanes = 16;
  __m512 parts[16];
  for (int k = 0; k < 16; ++k) parts[k] = _mm512_loadu_ps(table + kLanes * k);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m512i indices =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i)));
    // Each index picks from two parts by its lower 5 bits, then from halves by its upper bits.
    __m512 found[8];
    for (int k = 0; k < 8; ++k) {
      found[k] = _mm512_permutex2var_ps(parts[2 * k], indices, parts[2 * k + 1]);
    }
    for (int halves = 4, bit = 32; halves > 0; halves /= 2, bit *= 2) {
      const __mmask16 upper = _mm512_test_epi32_mask(indices, _mm512_set1_epi32(bit));
      for (int k = 0; k < halves; ++k) {
        found[k] = _mm512_mask_blend_ps(upper, found[2 * k], found[2 * k + 1]);
      }
    }
    _mm512_storeu_ps(y + i, found[0]);
  }
  for (; i < n; ++i) y[i] = table[x[i]];
}
#else
inline void look_up(std::int64_t n, const std::uint8_t* x, const float* table, float* y) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) y[i] = table[x[i]];
}
#endif

}  // namespace steelyard::kernels
