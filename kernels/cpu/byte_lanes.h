// Bytes that a vectorized loop writes from lanes of 32 bits.
#pragma once

#if defined(__AVX2__) && !defined(__AVX512BW__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "steelyard/kernels/cpu/stream.h"
#include "steelyard/kernels/cpu/vectorize.h"

namespace steelyard::kernels {

// With AVX2, compilers narrow lanes to bytes by twice the instructions that it takes: there loops
// write the lanes, and narrow_lanes() the bytes.
#if defined(__AVX2__) && !defined(__AVX512BW__)
using ByteLane = std::int32_t;

// bytes[i] = the low byte of lanes[i].
inline void narrow_lanes(const ByteLane* lanes, std::int64_t n, std::uint8_t* bytes) {
  const __m256i low = _mm256_set1_epi32(0xFF);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // packing goes by halves
  const auto eight = [&](std::int64_t i) {
    const __m256i whole = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(lanes + i));
    return _mm256_and_si256(whole, low);
  };
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m256i packed = _mm256_packus_epi16(_mm256_packus_epi32(eight(i), eight(i + 8)),
                                               _mm256_packus_epi32(eight(i + 16), eight(i + 24)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes + i),
                        _mm256_permutevar8x32_epi32(packed, order));
  }
  for (; i < n; ++i) bytes[i] = static_cast<std::uint8_t>(lanes[i]);
}
#else
using ByteLane = std::uint8_t;
#endif

// Lets write(first, count, lanes) write elements [first, first + count) of some arrays of n bytes,
// lanes[k] for array k, piece by piece.
template <std::size_t kArrays, typename Write>
void write_bytes(std::int64_t n, const std::array<std::uint8_t*, kArrays>& bytes, Write&& write) {
  if constexpr (std::is_same_v<ByteLane, std::uint8_t>) {
    write(std::int64_t{0}, n, bytes);
  } else {
    constexpr std::int64_t kPiece = 256;
    alignas(kCacheLine) ByteLane lanes[kArrays][kPiece];
    std::array<ByteLane*, kArrays> written;
    for (std::size_t k = 0; k < kArrays; ++k) written[k] = lanes[k];
    for (std::int64_t first = 0; first < n; first += kPiece) {
      const std::int64_t count = std::min(kPiece, n - first);
      write(first, count, written);
      for (std::size_t k = 0; k < kArrays; ++k) narrow_lanes(lanes[k], count, bytes[k] + first);
    }
  }
}

}  // namespace steelyard::kernels
