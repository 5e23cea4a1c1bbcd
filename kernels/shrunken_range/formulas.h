// The rules of kernels/shrunken_range/shrunken_range.h, host and device.
#pragma once

#include "steelyard/kernels/qparams.h"
#include "steelyard/kernels/quantizer_state/formulas.h"

namespace steelyard::kernels {

// Candidates 0 ... kShrinkFactors - 1, from the widest range to the narrowest.
inline constexpr int kShrinkFactors = 100;

STEELYARD_HOST_DEVICE inline float shrunken_end(float end, int candidate) {
  return static_cast<float>(static_cast<double>(end) * (kShrinkFactors - candidate) /
                            kShrinkFactors);
}

// False where nothing was seen, and where a denormal range has shrunk to nothing.
STEELYARD_HOST_DEVICE inline bool is_candidate(float lo, float hi, int candidate) {
  if (!(lo <= hi)) return false;
  return candidate == 0 || shrunken_end(lo, candidate) != 0 || shrunken_end(hi, candidate) != 0;
}

STEELYARD_HOST_DEVICE inline QParams<float> qparams_of_candidate(float lo, float hi, int candidate,
                                                                 CodeRange range, bool symmetric) {
  return qparams_of_range<float>(shrunken_end(lo, candidate), shrunken_end(hi, candidate), range,
                                 symmetric);
}

// A value as the sums see it: 0, which every quantizer represents, for what is not finite.
STEELYARD_HOST_DEVICE inline float summed_value(float x) { return is_finite(x) ? x : 0.0F; }

STEELYARD_HOST_DEVICE inline double squared_difference(float quantized, float x) {
  const double error = static_cast<double>(quantized) - static_cast<double>(x);
  return error * error;
}

}  // namespace steelyard::kernels
