// Rounding of floats to bf16 for products whose instructions take denormals for 0, as AVX-512's
// rounding does: only where has_bf16() (cpu/rounded_operands.h). Private to the CPU's kernels.
#pragma once

#include <cstdint>

#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/value_type.h"

#ifdef __AVX512BW__
#include <immintrin.h>
#endif

namespace steelyard::kernels {

#ifdef __AVX512BW__
// Not intrinsics, which need a function, and all that it calls, compiled for bf16.
inline __m512i to_bf16(__m512 upper_half, __m512 lower_half) {
  __m512i rounded;
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(rounded) : "v"(upper_half), "v"(lower_half));
  return rounded;
}

// to[i] has first[i] in its low half and second[i], where there is one, in its high half.
inline void bf16_pairs(std::int64_t n, const float* first, const float* second, std::uint32_t* to) {
  alignas(64) static constexpr std::uint16_t kInterleaved[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i order = _mm512_load_si512(kInterleaved);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512 high = second == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(second + i);
    const __m512i both = to_bf16(high, _mm512_loadu_ps(first + i));
    _mm512_storeu_si512(to + i, _mm512_permutexvar_epi16(order, both));
  }
  for (; i < n; ++i) {
    const std::uint32_t high =
        second == nullptr ? 0U : std::uint32_t{narrow<BFloat16>(second[i]).bits} << 16;
    to[i] = narrow<BFloat16>(first[i]).bits | high;
  }
}
inline void bf16_pairs(std::int64_t n, const BFloat16* first, const BFloat16* second,
                       std::uint32_t* to) {
  if (second == nullptr) {
    STEELYARD_VECTORIZE
    for (std::int64_t i = 0; i < n; ++i) to[i] = first[i].bits;
    return;
  }
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) to[i] = first[i].bits | std::uint32_t{second[i].bits} << 16;
}
#endif

inline void round_to_bf16(std::int64_t n, const float* from, BFloat16* to) {
  std::int64_t i = 0;
#ifdef __AVX512BW__
  for (; i + 32 <= n; i += 32) {
    _mm512_storeu_si512(to + i, to_bf16(_mm512_loadu_ps(from + i + 16), _mm512_loadu_ps(from + i)));
  }
#endif
  STEELYARD_VECTORIZE
  for (; i < n; ++i) to[i] = narrow<BFloat16>(from[i]);
}

}  // namespace steelyard::kernels
