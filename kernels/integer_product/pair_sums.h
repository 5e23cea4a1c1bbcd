// A tile of exact integer sums: rows of int16 operands by packed int16 weights.
//
// With two operands of a row side by side and those of two rows of weights side by side, vpmaddwd
// multiplies 2 products a lane and adds them in int32: no product of operands of at most 9 bits
// saturates, and a vector does twice the products of a fused multiply-add of float32. NEON has no
// such instruction: smlal multiplies 4 int16 by one and adds the products to 4 sums.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace steelyard::kernels {

struct PairSums {
  using Operand = std::int16_t;

#if defined(__AVX512BW__)
  using Lanes = __m512i;
  static constexpr std::int64_t kLanes = 16;
  static constexpr std::int64_t kRows = 12;  // 24 sums, 2 weights and an operand in 32 registers
  static Lanes zero() { return _mm512_setzero_si512(); }
  static Lanes load(const Operand* from) { return _mm512_loadu_si512(from); }
  static Lanes repeat(std::int32_t pair) { return _mm512_set1_epi32(pair); }
  static Lanes load(const std::int32_t* from) { return _mm512_loadu_si512(from); }
  static void store(std::int32_t* to, Lanes sums) { _mm512_storeu_si512(to, sums); }
  static Lanes add_products(Lanes sums, Lanes a, Lanes b) {
    return _mm512_add_epi32(sums, _mm512_madd_epi16(a, b));
  }
#elif defined(__AVX2__)
  using Lanes = __m256i;
  static constexpr std::int64_t kLanes = 8;
  static constexpr std::int64_t kRows = 6;  // 12 sums, 2 weights and an operand in 16 registers
  static Lanes zero() { return _mm256_setzero_si256(); }
  static Lanes load(const Operand* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static Lanes repeat(std::int32_t pair) { return _mm256_set1_epi32(pair); }
  static Lanes load(const std::int32_t* from) {
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
  static constexpr std::int64_t kLanes = 4;
  static constexpr std::int64_t kRows = 8;  // 16 sums, 4 weights and 8 operands in 32 registers
  static Lanes zero() { return vdupq_n_s32(0); }
  // The first operands of 4 pairs, and the second ones.
  static int16x4x2_t load(const Operand* from) { return vld2_s16(from); }
  static int16x4_t repeat(std::int32_t pair) {  // once: smlal repeats an operand itself
    return vcreate_s16(static_cast<std::uint32_t>(pair));
  }
  static Lanes load(const std::int32_t* from) { return vld1q_s32(from); }
  static void store(std::int32_t* to, Lanes sums) { vst1q_s32(to, sums); }
  static Lanes add_products(Lanes sums, int16x4_t a, int16x4x2_t b) {
    return vmlal_lane_s16(vmlal_lane_s16(sums, b.val[0], a, 0), b.val[1], a, 1);
  }
#else
  static constexpr std::int64_t kLanes = 4;
  static constexpr std::int64_t kRows = 4;
  struct Lanes {
    std::int32_t of[kLanes];
  };
  static Lanes zero() { return {}; }
  static Lanes load(const Operand* from) {
    Lanes lanes;
    std::memcpy(&lanes, from, sizeof lanes);
    return lanes;
  }
  static Lanes repeat(std::int32_t pair) { return {{pair, pair, pair, pair}}; }
  static Lanes load(const std::int32_t* from) {
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
  static constexpr std::int64_t kColumns = 2 * kLanes;

  // sums[r * stride + c] (+)= the sum over runs b and operands i of rows[r][begins[b] + i] times
  // the weight of column c; with `add` they are added to what is there. Runs have the same even
  // length; weights are [runs, length / 2, kColumns, 2].
  static void compute(const Operand* const (&rows)[kRows], std::span<const std::int64_t> begins,
                      std::int64_t length, const Operand* weights, std::int32_t* sums,
                      std::int64_t stride, bool add) {
    Lanes low[kRows], high[kRows];
    for (std::int64_t r = 0; r < kRows; ++r) {
      const std::int32_t* const there = sums + r * stride;
      low[r] = add ? load(there) : zero();
      high[r] = add ? load(there + kLanes) : zero();
    }
    for (const std::int64_t begin : begins) {
      for (std::int64_t i = 0; i < length; i += 2, weights += 2 * kColumns) {
        const auto first = load(weights), second = load(weights + kColumns);
        for (std::int64_t r = 0; r < kRows; ++r) {
          std::int32_t pair;
          std::memcpy(&pair, rows[r] + begin + i, sizeof pair);
          const auto operand = repeat(pair);
          low[r] = add_products(low[r], operand, first);
          high[r] = add_products(high[r], operand, second);
        }
      }
    }
    for (std::int64_t r = 0; r < kRows; ++r) {
      store(sums + r * stride, low[r]);
      store(sums + r * stride + kLanes, high[r]);
    }
  }
};

}  // namespace steelyard::kernels
