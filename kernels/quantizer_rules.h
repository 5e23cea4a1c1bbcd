// The rules of kernels/quantizer_state.h for one channel, host and device: the same bits on both,
// so that no function of a mathematical library is called whose last bit differs between them.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/exponential.h"
#include "kernels/qparams.h"
#include "kernels/quantizer_state.h"

namespace steelyard::kernels {

STEELYARD_HOST_DEVICE inline bool is_finite(float value) { return value - value == 0.0F; }

// The smallest power of two that is no smaller: of value > 0.
STEELYARD_HOST_DEVICE inline double power_of_two_above(double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // in [0.5, 1)
  return std::ldexp(1.0, fraction == 0.5 ? exponent - 1 : exponent);
}

// The float that is no smaller, of a scale: at most 2^120.
STEELYARD_HOST_DEVICE inline float rounded_up(double scale) {
  const float rounded = static_cast<float>(scale < 0x1p120 ? scale : 0x1p120);
  return static_cast<double>(rounded) < scale ? std::nextafter(rounded, INFINITY) : rounded;
}

// The smallest scale of weights whose product with x has a bias of this magnitude: the bias fits
// int32 and both the scale and s_x * s_w are normal floats.
STEELYARD_HOST_DEVICE inline double weight_scale_floor(double bias, double x_scale) {
  constexpr double kSmallestNormal = 0x1p-126;
  double floor = bias / (x_scale * 0x1p30);
  floor = floor < kSmallestNormal / x_scale ? kSmallestNormal / x_scale : floor;
  return floor < kSmallestNormal ? kSmallestNormal : floor;
}

// The scale of weights that are all zero, behind a bias of this magnitude > 0.
STEELYARD_HOST_DEVICE inline double weight_scale_of_bias(double bias, double x_scale) {
  return power_of_two_above(bias / (x_scale * 0x1p20));
}

// |b| where it is finite and larger, else `largest`.
STEELYARD_HOST_DEVICE inline float larger_magnitude(float largest, float b) {
  const float magnitude = b < 0 ? -b : b;
  return is_finite(b) && magnitude > largest ? magnitude : largest;
}

// A weight scale raised to what the largest bias behind it needs, and the least it needs.
struct FittedScale {
  float scale;
  float floor;
};
STEELYARD_HOST_DEVICE inline FittedScale fit_weight_scale(float scale, bool zero_range,
                                                          double largest_bias, double x_scale) {
  const double floor = weight_scale_floor(largest_bias, x_scale);
  double wanted = scale;
  if (zero_range && largest_bias > 0) wanted = weight_scale_of_bias(largest_bias, x_scale);
  return {rounded_up(wanted < floor ? floor : wanted), rounded_up(floor)};
}

// The scale of a latent v that began at s0 > 0: v itself from s0 on, s0 * exp((v - s0) / s0) below.
// Positive whatever v is, smooth at s0, and no step makes it larger than LSQ's own scale. Kept
// within the limits of scales (kernels/qparams.h) and above `floor`.
STEELYARD_HOST_DEVICE inline float scale_of_latent(float latent, float initial, float floor,
                                                   CodeRange range) {
  const double s0 = initial;
  const double scale = latent >= initial ? latent : s0 * exp_of_negative((latent - s0) / s0);
  return bounded_scale<float>(scale < floor ? floor : scale, range.qmax - range.qmin);
}

// The zero point of a latent: its nearest code.
STEELYARD_HOST_DEVICE inline std::int32_t zero_point_of_latent(float latent, CodeRange range) {
  return quantize_value(latent, make_affine(range, 1.0F, 0));
}

// The slope of scale_of_latent, from its value.
STEELYARD_HOST_DEVICE inline float latent_slope(float scale, float initial) {
  const float ratio = scale / initial;
  return ratio < 1.0F ? ratio : 1.0F;
}

// One step's extremes enter those of all steps; lo > hi as in update_range().
STEELYARD_HOST_DEVICE inline void extend_range(float& lo, float& hi, float step_lo, float step_hi) {
  if (!(step_lo <= step_hi)) return;
  const bool first = !(lo <= hi);
  lo = first || step_lo < lo ? step_lo : lo;
  hi = first || step_hi > hi ? step_hi : hi;
}

// One step's extremes enter an average that starts right: as the plain mean of the first steps, as
// update_range() from where each weighs less than `constant` in that. `steps` counts the mean's; 0
// with a range says that none were counted, and the constant holds.
STEELYARD_HOST_DEVICE inline void average_range(float& lo, float& hi, std::int64_t& steps,
                                                float step_lo, float step_hi, double constant) {
  if (!(step_lo <= step_hi)) return;
  const bool first = !(lo <= hi);
  if (first || (steps > 0 && static_cast<double>(steps) * constant < 1)) {
    steps = first ? 1 : steps + 1;
  }
  const double equal = steps > 0 ? 1 / static_cast<double>(steps) : 0;
  update_range(lo, hi, step_lo, step_hi, equal > constant ? equal : constant);
}

// One step's extremes enter a range, which gives the scale and zero point. `steps` is read only for
// an average.
STEELYARD_HOST_DEVICE inline ScaleAndZeroPoint<float> follow_extremes(const RangeRule& rule,
                                                                      float& lo, float& hi,
                                                                      std::int64_t* steps,
                                                                      float step_lo,
                                                                      float step_hi) {
  if (rule.restarts) {
    lo = step_lo;
    hi = step_hi;
  } else if (rule.averaging > 0) {
    average_range(lo, hi, *steps, step_lo, step_hi, rule.averaging);
  } else {
    extend_range(lo, hi, step_lo, step_hi);
  }
  return qparams_of_range<float>(lo, hi, rule.codes, rule.symmetric);
}

// The same for a quantizer with one scale and all that it keeps.
STEELYARD_HOST_DEVICE inline void follow_extremes(const RangeRule& rule, const RangeQuantizer& to,
                                                  float step_lo, float step_hi) {
  const auto chosen = follow_extremes(rule, *to.lo, *to.hi, to.steps, step_lo, step_hi);
  *to.scale = *to.step_scale = chosen.scale;
  *to.zero_point = *to.step_zero_point = chosen.zero_point;
  *to.zero_range = is_zero_range(*to.lo, *to.hi) ? 1 : 0;
}

// The same range in codes of another width.
STEELYARD_HOST_DEVICE inline ScaleAndZeroPoint<float> rescaled_qparams(
    const ScaleAndZeroPoint<float>& qparams, CodeRange from, CodeRange to, bool symmetric) {
  const double ratio = double(from.qmax - from.qmin) / (to.qmax - to.qmin);
  const double place = (qparams.zero_point - from.qmin) / ratio + to.qmin;
  return {bounded_scale<float>(qparams.scale * ratio, to.qmax - to.qmin),
          symmetric ? qparams.zero_point : static_cast<std::int32_t>(round_half_even(place))};
}

}  // namespace steelyard::kernels
