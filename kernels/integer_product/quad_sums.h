// Codes of 8 bits by weights of 8 bits, with VNNI.
#pragma once

#if defined(__AVX512BW__)
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace steelyard::kernels {

// vpdpbusd multiplies 4 unsigned codes a lane by 4 signed weights and adds the products in int32.
// None saturates; a sum may wrap on its way, and then wraps back. Only where has_vnni()
// (kernels/instructions.h).
struct QuadSums {
  using Operand = std::uint8_t;
  using Weight = std::int8_t;
  using Lanes = __m512i;
  using Weights = __m512i;
  static constexpr std::int64_t kLanes = 16;
  static constexpr std::int64_t kTogether = 4;
  static constexpr std::int64_t kRowsTogether = 1;
  static constexpr std::int64_t kAtOnce = 1;
  static constexpr std::int64_t kAhead = 2048;  // how far ahead weights are fetched
  static constexpr std::int64_t kRows = 12;     // 24 sums, 2 weights and an operand in 32 registers
  static constexpr bool kTakesDifferences = false;

  static Lanes load_sums(const std::int32_t* from) { return _mm512_loadu_si512(from); }
  static Weights load_weights(const Weight* from) { return _mm512_loadu_si512(from); }
  static Lanes repeat(const Operand* four) {
    std::int32_t word;
    std::memcpy(&word, four, sizeof word);
    return _mm512_set1_epi32(word);
  }
  static void store(std::int32_t* to, Lanes sums) { _mm512_storeu_si512(to, sums); }
  // Not the intrinsic, which needs a function, and all that it calls, compiled for VNNI.
  static Lanes add_products(Lanes sums, Lanes codes, Weights weights) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(codes), "v"(weights));
    return sums;
  }
};

}  // namespace steelyard::kernels
#endif
