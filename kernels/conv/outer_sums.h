// A tile of a convolution's weight gradient: sums of outer products of pixels of x, a row of the
// tile for each, and of grad_y, a column for each. Private to this family.
//
// An operand is 32 bits, of one pixel or, where a processor multiplies bf16, of two neighbours: its
// instruction multiplies both pairs and adds the products.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "steelyard/kernels/cpu/each_index.h"

namespace steelyard::kernels {

// One pixel an operand, float32.
struct FloatOperands {
  using Operand = float;
  static constexpr std::int64_t kPixels = 1;

#if defined(__AVX512F__)
  using Lanes = __m512;
  static constexpr std::int64_t kLanes = 16;
  static constexpr std::int64_t kRows = 12;  // 24 sums, 2 columns and a row in 32 registers
  static Lanes load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Lanes sums) { _mm512_storeu_ps(to, sums); }
  static Lanes repeat(const Operand* x) { return _mm512_set1_ps(*x); }
  static Lanes add_products(Lanes sums, Lanes a, Lanes b) { return _mm512_fmadd_ps(a, b, sums); }
#elif defined(__AVX2__) && defined(__FMA__)
  using Lanes = __m256;
  static constexpr std::int64_t kLanes = 8;
  static constexpr std::int64_t kRows = 6;  // 12 sums, 2 columns and a row in 16 registers
  static Lanes load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, Lanes sums) { _mm256_storeu_ps(to, sums); }
  static Lanes repeat(const Operand* x) { return _mm256_broadcast_ss(x); }
  static Lanes add_products(Lanes sums, Lanes a, Lanes b) { return _mm256_fmadd_ps(a, b, sums); }
#elif defined(__aarch64__)
  using Lanes = float32x4_t;
  static constexpr std::int64_t kLanes = 4;
  static constexpr std::int64_t kRows = 12;  // 24 sums, 2 columns and a row in 32 registers
  static Lanes load(const float* from) { return vld1q_f32(from); }
  static void store(float* to, Lanes sums) { vst1q_f32(to, sums); }
  static Lanes repeat(const Operand* x) { return vdupq_n_f32(*x); }
  static Lanes add_products(Lanes sums, Lanes a, Lanes b) { return vfmaq_f32(sums, a, b); }
#else
  static constexpr std::int64_t kLanes = 4;
  static constexpr std::int64_t kRows = 6;
  struct Lanes {
    float of[kLanes];
  };
  static Lanes load(const float* from) {
    Lanes lanes;
    std::memcpy(&lanes, from, sizeof lanes);
    return lanes;
  }
  static void store(float* to, Lanes sums) { std::memcpy(to, &sums, sizeof sums); }
  static Lanes repeat(const Operand* x) { return {{*x, *x, *x, *x}}; }
  static Lanes add_products(Lanes sums, Lanes a, Lanes b) {
    for (std::int64_t i = 0; i < kLanes; ++i) sums.of[i] += a.of[i] * b.of[i];
    return sums;
  }
#endif
};

#if defined(__AVX512BW__)
// Two pixels an operand, bf16, the first in the low half: only where has_bf16()
// (cpu/rounded_operands.h).
struct Bf16Operands : FloatOperands {
  using Operand = std::uint32_t;
  static constexpr std::int64_t kPixels = 2;

  static Lanes load(const Operand* from) { return _mm512_castsi512_ps(_mm512_loadu_si512(from)); }
  using FloatOperands::load;
  static Lanes repeat(const Operand* x) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*x)));
  }
  // Not the intrinsic, which needs a function, and all that it calls, compiled for bf16.
  static Lanes add_products(Lanes sums, Lanes a, Lanes b) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b));
    return sums;
  }
};
#endif

// Lines of pixels, each of `steps` operands, which are x_step apart in x and grad_step in grad.
struct OuterLines {
  std::span<const std::int64_t> begins;  // of the lines, in x
  std::int64_t steps, x_step, grad_step;
};

// A tile's sums fill the registers: kRows rows of two vectors, or twice as many of one.
template <class O, std::int64_t kVectors>
inline constexpr std::int64_t kTileRows = O::kRows * 2 / kVectors;

// sums[r, c] += the sum over the operands i of all lines of x[begin + i * x_step + offsets[r]] *
// grad[i * grad_step + c], i counting on from line to line in grad; there are kTileRows rows and
// kVectors * kLanes columns. Rows that lie side by side have kSideBySide, and their first offset
// counts.
template <class O, std::int64_t kVectors, bool kSideBySide>
void add_outer_products(const typename O::Operand* x, const OuterLines& lines,
                        const std::int64_t* offsets, const typename O::Operand* grad, float* sums) {
  constexpr std::int64_t kSums = O::kRows * 2;
  typename O::Lanes of[kSums];
  for_each_index<kSums>([&](auto i) { of[i] = O::load(sums + i * O::kLanes); });
  const auto [begins, steps, x_step, grad_step] = lines;
  for (const std::int64_t begin : begins) {
    const typename O::Operand* at = x + begin + (kSideBySide ? offsets[0] : 0);
    for (std::int64_t i = 0; i < steps; ++i, at += x_step, grad += grad_step) {
      typename O::Lanes columns[kVectors];
      for_each_index<kVectors>([&](auto v) { columns[v] = O::load(grad + v * O::kLanes); });
      for_each_index<kTileRows<O, kVectors>>([&](auto r) {
        const auto row = O::repeat(at + (kSideBySide ? r : offsets[r]));
        for_each_index<kVectors>([&](auto v) {
          constexpr std::int64_t kSum = r * kVectors + v;
          of[kSum] = O::add_products(of[kSum], row, columns[v]);
        });
      });
    }
  }
  for_each_index<kSums>([&](auto i) { O::store(sums + i * O::kLanes, of[i]); });
}

}  // namespace steelyard::kernels
