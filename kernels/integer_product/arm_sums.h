// Codes of 8 bits, made signed, by weights of 8 bits on 64-bit Arm. Nothing saturates; a sum may
// wrap on its way, and then wraps back.
#pragma once

#if defined(__aarch64__)
#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace steelyard::kernels {

// Tells the assembler of the instructions. They are no intrinsics, which need functions, and all
// that they call, compiled for them. With SVE the architecture is new enough, and has more to lose.
#if defined(__ARM_FEATURE_SVE)
#define STEELYARD_ARM_BYTE_PRODUCTS ".arch_extension dotprod\n\t.arch_extension i8mm\n\t"
#else
#define STEELYARD_ARM_BYTE_PRODUCTS ".arch armv8.2-a+dotprod+i8mm\n\t"
#endif

// What all have in common.
struct ByteSums {
  using Operand = std::int8_t;
  using Weight = std::int8_t;
  static constexpr std::int64_t kLanes = 4;
  static constexpr bool kTakesDifferences = false;
  static constexpr std::int64_t kAhead = 0;  // processors fetch the weights themselves
};

// smull and smlal add two products in int16, sadalp adds neighbours of these to int32: a column has
// four sums, which end as one. Only for weights above -128, as twice its square is 2^15.
struct LongSums : ByteSums {
  struct Lanes {
    int32x4_t a, b, c, d;  // of a column each
  };
  struct Weights {
    int8x16_t a, b, c, d;
  };
  static constexpr std::int64_t kTogether = 16;
  static constexpr std::int64_t kAtOnce = 1;
  static constexpr std::int64_t kRowsTogether = 1;
  static constexpr std::int64_t kRows = 2;  // 16 sums, 8 weights and an operand in 32 registers

  static Lanes load_sums(const std::int32_t* from) {
    const int32x4_t zero = vdupq_n_s32(0);
    return {vld1q_lane_s32(from, zero, 0), vld1q_lane_s32(from + 1, zero, 0),
            vld1q_lane_s32(from + 2, zero, 0), vld1q_lane_s32(from + 3, zero, 0)};
  }
  static void store(std::int32_t* to, Lanes sums) {
    vst1q_s32(to, vpaddq_s32(vpaddq_s32(sums.a, sums.b), vpaddq_s32(sums.c, sums.d)));
  }
  static Weights load_weights(const Weight* from) {
    return {vld1q_s8(from), vld1q_s8(from + 16), vld1q_s8(from + 32), vld1q_s8(from + 48)};
  }
  static int8x16_t repeat(const Operand* sixteen) { return vld1q_s8(sixteen); }
  // In one piece, for compilers order the products of several rows so that registers do not
  // suffice.
  static Lanes add_products(Lanes sums, int8x16_t codes, Weights weights) {
    int16x8_t of_a, of_b, of_c, of_d;
    asm("smull %4.8h, %8.8b, %9.8b\n\t"
        "smull %5.8h, %8.8b, %10.8b\n\t"
        "smull %6.8h, %8.8b, %11.8b\n\t"
        "smull %7.8h, %8.8b, %12.8b\n\t"
        "smlal2 %4.8h, %8.16b, %9.16b\n\t"
        "smlal2 %5.8h, %8.16b, %10.16b\n\t"
        "smlal2 %6.8h, %8.16b, %11.16b\n\t"
        "smlal2 %7.8h, %8.16b, %12.16b\n\t"
        "sadalp %0.4s, %4.8h\n\t"
        "sadalp %1.4s, %5.8h\n\t"
        "sadalp %2.4s, %6.8h\n\t"
        "sadalp %3.4s, %7.8h"
        : "+w"(sums.a), "+w"(sums.b), "+w"(sums.c), "+w"(sums.d), "=&w"(of_a), "=&w"(of_b),
          "=&w"(of_c), "=&w"(of_d)
        : "w"(codes), "w"(weights.a), "w"(weights.b), "w"(weights.c), "w"(weights.d));
    return sums;
  }
};

// sdot multiplies 4 codes by 4 weights of each of 4 columns. Only from level armv8.2-a+dotprod on
// (kernels/instructions.h).
struct DotSums : ByteSums {
  using Lanes = int32x4_t;
  using Weights = int8x16_t;
  using Operands = int8x16_t;
  static constexpr std::int64_t kTogether = 4;
  static constexpr std::int64_t kAtOnce = 4;
  static constexpr std::int64_t kRowsTogether = 1;
  static constexpr std::int64_t kRows = 8;  // 16 sums, 8 operands and 2 weights in 32 registers

  static Lanes load_sums(const std::int32_t* from) { return vld1q_s32(from); }
  static void store(std::int32_t* to, Lanes sums) { vst1q_s32(to, sums); }
  static Weights load_weights(const Weight* from) { return vld1q_s8(from); }
  static Operands load(const Operand* sixteen) { return vld1q_s8(sixteen); }
  static Operands repeat(const Operand* four) {
    std::int32_t word;
    std::memcpy(&word, four, sizeof word);
    return vreinterpretq_s8_s32(vdupq_n_s32(word));
  }
  static Lanes add_products(Lanes sums, Operands codes, Weights weights) {
    return add_products_of<0>(sums, codes, weights);
  }
  template <int i>
  static Lanes add_products_of(Lanes sums, Operands codes, Weights weights) {
    asm(STEELYARD_ARM_BYTE_PRODUCTS "sdot %0.4s, %1.16b, %2.4b[%3]"
        : "+w"(sums)
        : "w"(weights), "w"(codes), "i"(i));
    return sums;
  }
};

// smmla multiplies 8 codes of each of 2 rows by 8 weights of each of 2 columns. Only at level
// armv8.2-a+i8mm (kernels/instructions.h).
struct MatrixSums : ByteSums {
  // Each [2 rows, 2 columns] of 4.
  struct Lanes {
    int32x4_t low, high;
  };
  using Weights = int8x16x2_t;
  using Operands = int8x16x2_t;
  static constexpr std::int64_t kTogether = 8;
  static constexpr std::int64_t kAtOnce = 2;
  static constexpr std::int64_t kRowsTogether = 2;
  static constexpr std::int64_t kRows = 8;  // 16 sums, 8 operands and 4 weights in 32 registers

  static Lanes load_sums(const std::int32_t* row, const std::int32_t* next) {
    return turned({vld1q_s32(row), vld1q_s32(next)});
  }
  static void store(std::int32_t* row, std::int32_t* next, Lanes sums) {
    const Lanes rows = turned(sums);
    vst1q_s32(row, rows.low);
    vst1q_s32(next, rows.high);
  }
  static Weights load_weights(const Weight* from) {
    return {{vld1q_s8(from), vld1q_s8(from + 16)}};
  }
  static Operands load(const Operand* row, const Operand* next) {
    const int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(row));
    const int64x2_t b = vreinterpretq_s64_s8(vld1q_s8(next));
    return {{vreinterpretq_s8_s64(vzip1q_s64(a, b)), vreinterpretq_s8_s64(vzip2q_s64(a, b))}};
  }
  static int8x16_t join(const Operand* row, const Operand* next) {
    return vcombine_s8(vld1_s8(row), vld1_s8(next));
  }
  static Lanes add_products(Lanes sums, int8x16_t codes, Weights weights) {
    return {multiplied(sums.low, codes, weights.val[0]),
            multiplied(sums.high, codes, weights.val[1])};
  }
  template <int i>
  static Lanes add_products_of(Lanes sums, Operands codes, Weights weights) {
    return add_products(sums, codes.val[i], weights);
  }

 private:
  // From rows of 4 columns to squares, and back.
  static Lanes turned(Lanes of) {
    const int64x2_t low = vreinterpretq_s64_s32(of.low), high = vreinterpretq_s64_s32(of.high);
    return {vreinterpretq_s32_s64(vzip1q_s64(low, high)),
            vreinterpretq_s32_s64(vzip2q_s64(low, high))};
  }
  static int32x4_t multiplied(int32x4_t sums, int8x16_t codes, int8x16_t weights) {
    asm(STEELYARD_ARM_BYTE_PRODUCTS "smmla %0.4s, %1.16b, %2.16b"
        : "+w"(sums)
        : "w"(codes), "w"(weights));
    return sums;
  }
};

#undef STEELYARD_ARM_BYTE_PRODUCTS

}  // namespace steelyard::kernels
#endif
