// The rules of histogram.h, host and device: where a value is counted, and how wide bins
// are.
#pragma once

#include <cfloat>
#include <cmath>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/histogram/histogram.h"
#include "steelyard/kernels/quantizer_state/formulas.h"

namespace steelyard::kernels {

STEELYARD_HOST_DEVICE inline float histogram_inverse_width(int exponent) {
  return std::ldexp(1.0F, -exponent);
}

// A non-finite value has the extra bin `bins`. Scaling by a power of two is exact unless it
// underflows; floor then still has to see the sign.
STEELYARD_HOST_DEVICE inline std::int32_t histogram_bin(float value, float inverse_width,
                                                        std::int32_t bins) {
  const bool finite = is_finite(value);
  const float scaled = std::floor((finite ? value : 0.0F) * inverse_width);
  const float floor = value < 0 && scaled > -1.0F ? -1.0F : scaled;
  return finite ? static_cast<std::int32_t>(floor) + bins / 2 : bins;
}

// The smallest exponent whose bins cover [-amax, amax] (amax finite, >= 0; 0 gives the smallest
// exponent that keeps the width a normal float).
STEELYARD_HOST_DEVICE inline int smallest_exponent(double amax, std::int64_t bins) {
  constexpr int kSmallest = FLT_MIN_EXP - 1;  // 2^-126
  if (!(amax > 0)) return kSmallest;
  // amax = fraction * 2^e with fraction in [0.5, 1), so amax < 2^e: e - floor(log2(bins / 2))
  // covers it, and one less may as well (the upper end is open, so amax itself must lie below).
  const double half = static_cast<double>(bins / 2);
  int exponent = 0;
  int of_half = 0;
  std::frexp(amax, &exponent);
  std::frexp(half, &of_half);
  exponent -= of_half - 1;
  while (exponent > kSmallest && amax < std::ldexp(half, exponent - 1)) --exponent;
  return exponent > kSmallest ? exponent : kSmallest;
}

// How a channel's grid changes with one step's extremes, which enter lo and hi.
struct GridChange {
  int exponent;
  int doublings;  // of the bin width, where something was counted before
};
STEELYARD_HOST_DEVICE inline GridChange extend_histogram(float& lo, float& hi, int exponent,
                                                         float step_lo, float step_hi,
                                                         std::int64_t bins) {
  if (!(step_lo <= step_hi)) return {exponent, 0};
  const bool first = !(lo <= hi);
  extend_range(lo, hi, step_lo, step_hi);
  const int needed = smallest_exponent(-lo > hi ? -lo : hi, bins);
  if (first) return {needed, 0};
  return needed > exponent ? GridChange{needed, needed - exponent} : GridChange{exponent, 0};
}

// Bins merge on each side of 0 by themselves: side[k * outward] for k in [0, half) are counts from
// 0 on. This is the count that bin k has after `doublings` of the width: of old bins k *
// 2^doublings and on, none of which lies nearer to 0.
template <typename Count>
STEELYARD_HOST_DEVICE inline Count merged_count(const Count* side, int outward, std::int64_t half,
                                                int doublings, std::int64_t k) {
  const int shift = doublings < 31 ? doublings : 31;  // half < 2^31
  const std::int64_t end = (k + 1) << shift;
  Count sum = 0;
  for (std::int64_t old = k << shift; old < (end < half ? end : half); ++old) {
    sum += side[old * outward];
  }
  return sum;
}

}  // namespace steelyard::kernels
