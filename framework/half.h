// The 16-bit floating formats as bits: IEEE 754 binary16 and bfloat16.
#pragma once

#include <bit>
#include <cstdint>

namespace steelyard {

// A binary format with `kExponent` exponent and `kMantissa` stored mantissa bits, in 16 bits.
template <int kExponent, int kMantissa>
struct Float16Format {
  static_assert(kExponent + kMantissa == 15);
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr int kMinExponent = 1 - kBias;
  static constexpr std::uint32_t kInfinity = ((1u << kExponent) - 1) << kMantissa;

  // Exact.
  static double decode(std::uint16_t bits) {
    const std::uint64_t sign = std::uint64_t{bits} >> 15 << 63;
    const int exponent = (bits & 0x7FFF) >> kMantissa;
    const std::uint64_t mantissa = bits & ((1u << kMantissa) - 1);
    if (exponent == (1 << kExponent) - 1) {
      return std::bit_cast<double>(sign | std::uint64_t{0x7FF} << 52 |
                                   mantissa << (52 - kMantissa));
    }
    if (exponent == 0) {  // subnormal: mantissa units of 2^(kMinExponent - kMantissa)
      const auto unit =
          std::bit_cast<double>(static_cast<std::uint64_t>(1023 + kMinExponent - kMantissa) << 52);
      const double magnitude = static_cast<double>(mantissa) * unit;
      return sign != 0 ? -magnitude : magnitude;
    }
    return std::bit_cast<double>(sign | static_cast<std::uint64_t>(exponent - kBias + 1023) << 52 |
                                 mantissa << (52 - kMantissa));
  }

  // To nearest, ties to even; beyond the largest value gives infinity, NaN stays a (quiet) NaN.
  static std::uint16_t encode(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    const auto sign = static_cast<std::uint32_t>(bits >> 63 << 15);
    const int exponent = static_cast<int>(bits >> 52 & 0x7FF) - 1023;
    const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
    if (exponent == 1024) {
      const std::uint32_t quiet = fraction != 0 ? 1u << (kMantissa - 1) : 0;
      return static_cast<std::uint16_t>(sign | kInfinity | quiet);
    }
    if (exponent > kBias) return static_cast<std::uint16_t>(sign | kInfinity);
    const int below = exponent < kMinExponent ? kMinExponent - exponent : 0;
    const int shift = 52 - kMantissa + below;
    if (shift > 53) return static_cast<std::uint16_t>(sign);  // under half of the smallest value
    const std::uint64_t significand = fraction | std::uint64_t{1} << 52;
    std::uint64_t kept = significand >> shift;
    const std::uint64_t rest = significand & ((std::uint64_t{1} << shift) - 1);
    const std::uint64_t half = std::uint64_t{1} << (shift - 1);
    if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
    // The hidden bit adds one to the exponent field, and so does a carry out of the mantissa.
    const auto field = static_cast<std::uint32_t>(below > 0 ? 0 : exponent - kMinExponent);
    return static_cast<std::uint16_t>(sign |
                                      ((field << kMantissa) + static_cast<std::uint32_t>(kept)));
  }
};

using Half = Float16Format<5, 10>;
using BFloat16 = Float16Format<8, 7>;

}  // namespace steelyard
