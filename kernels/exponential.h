// exp and log of the same bits on host and device: from sums, products and quotients alone, since
// the last bits of mathematical libraries differ.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "steelyard/kernels/affine.h"

namespace steelyard::kernels {

inline constexpr double kLn2High = 0x1.62e42fefa38p-1;   // 42 bits: products with k are exact
inline constexpr double kLn2Low = 0x1.ef35793c7673p-45;  // ln 2 - kLn2High

// exp(x) of x <= 0 within 2 units in the last place: x = k * ln 2 + r with |r| <= ln(2) / 2 and the
// Taylor series of exp(r).
STEELYARD_HOST_DEVICE inline double exp_of_negative(double x) {
  if (x < -745.2) return 0;  // below half the smallest denormal
  constexpr double kInverseLn2 = 0x1.71547652b82fep+0;
  const double k = round_half_even(x * kInverseLn2);
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double sum = 1;  // Horner: 1 + r (1 + r/2 (1 + r/3 (...)))
  STEELYARD_ROLLED
  for (int n = 14; n > 0; --n) sum = 1 + r / n * sum;
  return std::ldexp(sum, static_cast<int>(k));
}

// log(x) of a normal x > 0 within 3 units in the last place: x = 2^k * m with m in [sqrt(1/2),
// sqrt(2)), log(m) = 2 artanh(s) with s = (m - 1) / (m + 1), |s| < 0.172, and the series
// s + s^3 / 3 + s^5 / 5 + ..., its odd and even terms apart.
STEELYARD_HOST_DEVICE inline double natural_log(double x) {
  constexpr std::int64_t kBitsOfRootHalf = 0x3FE6A09E667F3BCD;
  std::int64_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  const std::int64_t k = (bits - kBitsOfRootHalf) >> 52;
  bits -= k * (std::int64_t{1} << 52);
  double m = 0;
  std::memcpy(&m, &bits, sizeof m);
  const double s = (m - 1) / (m + 1);
  const double z = s * s;
  const double w = z * z;
  const double odd = 1.0 / 3 + w * (1.0 / 7 + w * (1.0 / 11 + w * (1.0 / 15 + w * (1.0 / 19))));
  const double even =
      w * (1.0 / 5 + w * (1.0 / 9 + w * (1.0 / 13 + w * (1.0 / 17 + w * (1.0 / 21)))));
  const double of_m = 2 * (s + s * (z * odd + even));
  const auto exponent = static_cast<double>(k);
  return exponent * kLn2High + (of_m + exponent * kLn2Low);
}

}  // namespace steelyard::kernels
