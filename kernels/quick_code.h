// Codes of many values that share a scale, without a division each: on a GPU a division costs as
// much as all other arithmetic of a code.
#pragma once

#include <cmath>
#include <type_traits>

#include "steelyard/kernels/affine.h"

namespace steelyard::kernels {

// Scales whose reciprocals, and remainders of quotients near a tie, are normal numbers.
template <typename T>
STEELYARD_HOST_DEVICE inline bool has_quick_codes(T scale) {
  constexpr T kMost = std::is_same_v<T, float> ? T(0x1p60) : T(0x1p500);
  return scale >= 1 / kMost && scale <= kMost;
}

// unclamped_code() from reciprocal = 1 / s; from 1.5 * 2^21 on (2^50) another such number of the
// same sign. x * reciprocal is less than two units in the last place off; the first correction
// leaves hardly more than half of one, so the second remainder is exact and the second correction
// rounds as a division does (P. Markstein, IBM Journal of Research and Development 34, 1990).
template <typename T>
STEELYARD_HOST_DEVICE inline T quick_code(T x, T reciprocal, const Affine<T>& p) {
  constexpr T kToInteger = std::is_same_v<T, float> ? T(0x1.8p23) : T(0x1.8p52);
  constexpr T kMost = kToInteger / 4;
  const T near = x * reciprocal;
  const T nearer = std::fma(std::fma(-near, p.scale, x), reciprocal, near);
  const T nearest = std::fma(std::fma(-nearer, p.scale, x), reciprocal, nearer);
  const T quotient = std::fabs(near) < kMost ? nearest : near;   // no remainder of infinity
  return ((quotient + kToInteger) - kToInteger) + p.zero_point;  // their sum is an integer
}

}  // namespace steelyard::kernels
