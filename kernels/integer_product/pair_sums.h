// Differences of codes and zero point by weights, both as int16, on every machine.
//
// With two operands of a row side by side and those of two rows of weights side by side, vpmaddwd
// multiplies 2 products a lane and adds them in int32: no product of operands of at most 9 bits
// saturates, and a vector does twice the products of a fused multiply-add of float32. NEON has no
// such instruction: smlal multiplies 4 int16 by one of a vector's and adds the products to 4 sums.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace steelyard::kernels {

struct PairSums {
  using Operand = std::int16_t;
  using Weight = std::int16_t;
  static constexpr bool kTakesDifferences = true;
  static constexpr std::int64_t kRowsTogether = 1;
#if defined(__aarch64__)
  static constexpr std::int64_t kTogether = 1;
  static constexpr std::int64_t kAtOnce = 8;
  static constexpr std::int64_t kAhead = 0;
#else
  static constexpr std::int64_t kTogether = 2;
  static constexpr std::int64_t kAtOnce = 1;
  static constexpr std::int64_t kAhead = 1024;  // how far ahead weights are fetched
#endif

#if defined(__AVX512BW__)
  using Lanes = __m512i;
  using Weights = Lanes;
  static constexpr std::int64_t kLanes = 16;
  static constexpr std::int64_t kRows = 12;  // 24 sums, 2 weights and an operand in 32 registers
  static Weights load_weights(const Weight* from) { return _mm512_loadu_si512(from); }
  static Lanes repeat(const Operand* two) { return _mm512_set1_epi32(word_of(two)); }
  static Lanes load_sums(const std::int32_t* from) { return _mm512_loadu_si512(from); }
  static void store(std::int32_t* to, Lanes sums) { _mm512_storeu_si512(to, sums); }
  static Lanes add_products(Lanes sums, Lanes a, Lanes b) {
    return _mm512_add_epi32(sums, _mm512_madd_epi16(a, b));
  }
#elif defined(__AVX2__)
  using Lanes = __m256i;
  using Weights = Lanes;
  static constexpr std::int64_t kLanes = 8;
  static constexpr std::int64_t kRows = 6;  // 12 sums, 2 weights and an operand in 16 registers
  static Weights load_weights(const Weight* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static Lanes repeat(const Operand* two) { return _mm256_set1_epi32(word_of(two)); }
  static Lanes load_sums(const std::int32_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static void store(std::int32_t* to, Lanes sums) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), sums);
  }
  static Lanes add_products(Lanes sums, Lanes a, Lanes b) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(a, b));
  }
#elif defined(__aarch64__)
  using Lanes = int32x4_t;
  using Weights = int16x4_t;
  using Operands = int16x8_t;
  static constexpr std::int64_t kLanes = 4;
  static constexpr std::int64_t kRows = 8;  // 16 sums, 8 operands and 2 weights in 32 registers
  static Weights load_weights(const Weight* from) { return vld1_s16(from); }
  static Operands load(const Operand* eight) { return vld1q_s16(eight); }
  static int16x4_t repeat(const Operand* one) { return vld1_dup_s16(one); }
  static Lanes load_sums(const std::int32_t* from) { return vld1q_s32(from); }
  static void store(std::int32_t* to, Lanes sums) { vst1q_s32(to, sums); }
  static Lanes add_products(Lanes sums, int16x4_t a, Weights b) { return vmlal_s16(sums, a, b); }
  template <int i>
  static Lanes add_products_of(Lanes sums, Operands a, Weights b) {
    return vmlal_laneq_s16(sums, b, a, i);
  }
#else
  static constexpr std::int64_t kLanes = 4;
  static constexpr std::int64_t kRows = 4;
  struct Lanes {
    std::int32_t of[kLanes];
  };
  using Weights = Lanes;
  static Weights load_weights(const Weight* from) {
    Weights weights;
    std::memcpy(&weights, from, sizeof weights);
    return weights;
  }
  static Lanes repeat(const Operand* two) {
    const std::int32_t pair = word_of(two);
    return {{pair, pair, pair, pair}};
  }
  static Lanes load_sums(const std::int32_t* from) {
    Lanes lanes;
    std::memcpy(&lanes, from, sizeof lanes);
    return lanes;
  }
  static void store(std::int32_t* to, Lanes sums) { std::memcpy(to, &sums, sizeof sums); }
  static Lanes add_products(Lanes sums, Lanes a, Lanes b) {
    Operand x[2 * kLanes], y[2 * kLanes];
    std::memcpy(x, &a, sizeof a);
    std::memcpy(y, &b, sizeof b);
    for (std::int64_t i = 0; i < kLanes; ++i) {
      sums.of[i] += x[2 * i] * y[2 * i] + x[2 * i + 1] * y[2 * i + 1];
    }
    return sums;
  }
#endif

 private:
  [[maybe_unused]] static std::int32_t word_of(const Operand* two) {
    std::int32_t word;
    std::memcpy(&word, two, sizeof word);
    return word;
  }
};

}  // namespace steelyard::kernels
