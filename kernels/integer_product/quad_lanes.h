// Vectors of sums of codes of 8 bits by weights of 8 bits, four of each a lane.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace steelyard::kernels {

// What QuadSums and ByteSums have in common: all but the products.
struct QuadLanes {
  using Operand = std::uint8_t;
  using Weight = std::int8_t;
  static constexpr std::int64_t kTogether = 4;
  static constexpr std::int64_t kRowsTogether = 1;
  static constexpr std::int64_t kAtOnce = 1;
  static constexpr bool kTakesDifferences = false;

#if defined(__AVX512BW__)
  using Lanes = __m512i;
  using Weights = Lanes;
  static constexpr std::int64_t kLanes = 16;
  static constexpr std::int64_t kAhead = 2048;  // how far ahead weights are fetched
  static constexpr std::int64_t kRows = 12;     // 24 sums, 2 weights and an operand in 32 registers

  static Lanes load_sums(const std::int32_t* from) { return _mm512_loadu_si512(from); }
  static Weights load_weights(const Weight* from) { return _mm512_loadu_si512(from); }
  static Lanes repeat(const Operand* four) { return _mm512_set1_epi32(word_of(four)); }
  static void store(std::int32_t* to, Lanes sums) { _mm512_storeu_si512(to, sums); }
#else
  using Lanes = __m256i;
  using Weights = Lanes;
  static constexpr std::int64_t kLanes = 8;
  static constexpr std::int64_t kAhead = 1024;
  static constexpr std::int64_t kRows = 6;  // 12 sums, 2 weights and an operand in 16 registers

  static Lanes load_sums(const std::int32_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const Lanes*>(from));
  }
  static Weights load_weights(const Weight* from) {
    return _mm256_loadu_si256(reinterpret_cast<const Lanes*>(from));
  }
  static Lanes repeat(const Operand* four) { return _mm256_set1_epi32(word_of(four)); }
  static void store(std::int32_t* to, Lanes sums) {
    _mm256_storeu_si256(reinterpret_cast<Lanes*>(to), sums);
  }
#endif

 private:
  static std::int32_t word_of(const Operand* four) {
    std::int32_t word;
    std::memcpy(&word, four, sizeof word);
    return word;
  }
};

}  // namespace steelyard::kernels
#endif
