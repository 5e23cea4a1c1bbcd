// Mask bits from byte flags and back.
#pragma once

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/cpu/vectorize.h"

namespace steelyard::kernels {

// Bit i % 8 of mask[i / 8] = flags[i], which is 0 or 1; the last byte's unused bits are 0.
inline void pack_flags(const std::uint8_t* flags, std::int64_t n, std::uint8_t* mask) {
  std::int64_t i = 0;
#ifdef __AVX512BW__
  for (; i + 64 <= n; i += 64) {
    const __m512i flags64 = _mm512_loadu_si512(flags + i);
    const std::uint64_t bits = _mm512_test_epi8_mask(flags64, flags64);
    std::memcpy(mask + i / 8, &bits, 8);
  }
#elif defined(__AVX2__)
  for (; i + 32 <= n; i += 32) {
    const __m256i flags32 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(flags + i));
    const std::int32_t bits = _mm256_movemask_epi8(_mm256_slli_epi16(flags32, 7));
    std::memcpy(mask + i / 8, &bits, 4);
  }
#endif
#ifdef __SSE2__
  for (; i + 16 <= n; i += 16) {
    const __m128i sixteen = _mm_loadu_si128(reinterpret_cast<const __m128i*>(flags + i));
    // The lowest bit of each byte becomes its highest, which movemask gathers.
    const auto bits = static_cast<std::uint16_t>(_mm_movemask_epi8(_mm_slli_epi16(sixteen, 7)));
    std::memcpy(mask + i / 8, &bits, 2);
  }
#endif
  for (; i + 8 <= n; i += 8) {
    std::uint64_t eight;
    std::memcpy(&eight, flags + i, 8);
    // The product moves flag i (bit 8i, little endian) to bit 56 + i; no two terms meet.
    mask[i / 8] = static_cast<std::uint8_t>((eight * 0x0102040810204080ULL) >> 56);
  }
  if (i == n) return;
  unsigned tail = 0;
  for (; i < n; ++i) tail |= static_cast<unsigned>(flags[i]) << (i % 8);
  mask[n / 8] = static_cast<std::uint8_t>(tail);
}

// flags[i] != 0 where bit i % 8 of mask[i / 8] is set, for i < n rounded up to a multiple of 8.
inline void unpack_flags(const std::uint8_t* mask, std::int64_t n, std::uint8_t* flags) {
  std::int64_t byte = 0;
#ifdef __AVX512BW__
  for (; 8 * byte + 64 <= n; byte += 8) {
    std::uint64_t bits;
    std::memcpy(&bits, mask + byte, 8);
    _mm512_storeu_si512(flags + 8 * byte, _mm512_movm_epi8(bits));
  }
#elif defined(__AVX2__)
  const __m256i bit = _mm256_set1_epi64x(static_cast<std::int64_t>(0x8040201008040201ULL));
  const __m256i of_bytes =
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  for (; 8 * byte + 32 <= n; byte += 4) {
    std::int32_t bits;
    std::memcpy(&bits, mask + byte, 4);
    const __m256i repeated = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), of_bytes);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(flags + 8 * byte),
                        _mm256_and_si256(repeated, bit));
  }
#endif
  for (; byte < (n + 7) / 8; ++byte) {
    // Byte i of the word keeps bit i of the mask.
    const std::uint64_t word = (mask[byte] * 0x0101010101010101ULL) & 0x8040201008040201ULL;
    std::memcpy(flags + 8 * byte, &word, 8);
  }
}

// grad_x[i] = grad_y[i] where flags[i] != 0, else 0. They may alias.
template <typename T>
void pass_flagged(std::int64_t n, const std::uint8_t* flags, const T* grad_y, T* grad_x) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const T grad = grad_y[i];
    grad_x[i] = pass_inside(flags[i] != 0, grad);
  }
}

}  // namespace steelyard::kernels
