// The rules of kernels/oscillation.h for one weight, host and device.
#pragma once

#include <cstdint>

#include "kernels/affine.h"

namespace steelyard::kernels {

// One more step's code of a weight that is not frozen.
STEELYARD_HOST_DEVICE inline void track_oscillation(std::int8_t step_code, float momentum,
                                                    float freeze_above, std::int8_t& code,
                                                    std::int8_t& direction, float& frequency,
                                                    float& mean_code, std::uint8_t& frozen) {
  const int change = (step_code > code) - (step_code < code);
  const float flip = change * direction < 0 ? 1.0F : 0.0F;
  if (change != 0) direction = static_cast<std::int8_t>(change);
  frequency += momentum * (flip - frequency);
  mean_code += momentum * (static_cast<float>(step_code) - mean_code);
  frozen = frequency > freeze_above ? 1 : 0;
  code = frozen != 0 ? static_cast<std::int8_t>(round_half_even(mean_code)) : step_code;
}

// grad with the damping gradient of a weight, `factor` = 2 lambda.
template <typename T>
STEELYARD_HOST_DEVICE inline T damped(T grad, T factor, T x, T scale, std::int8_t code,
                                      CodeRange range) {
  const bool within = x >= scale * T(range.qmin) && x <= scale * T(range.qmax);
  return within ? grad + factor * (x - dequantize_code(T(code), T(0), scale)) : grad;
}

}  // namespace steelyard::kernels
