// The rules of quantizer_state.h and kernels/weight_codes/weight_codes.h for one channel, host and
// device: the same bits on both, so that no function of a mathematical library is called whose last
// bit differs between them.
#pragma once

#include <cmath>
#include <cstdint>

#include "steelyard/kernels/exponential.h"
#include "steelyard/kernels/qparams.h"

namespace steelyard::kernels {

// How the extremes of each step make a range, and the range a scale.
struct RangeRule {
  double averaging = 0;   // as of UpdateExtremes; 0: extremes of all steps
  bool restarts = false;  // the range is that of the newest step alone
  CodeRange codes = {};
  bool symmetric = false;
};

// A quantizer with one scale and the range that its observer keeps, where they live.
struct RangeQuantizer {
  float* lo;  // lo > hi before the first finite value
  float* hi;
  std::int64_t* steps;  // of an average; null for extremes of all steps
  float* scale;
  std::int32_t* zero_point;
  std::uint8_t* zero_range;  // becomes 1 where the range is zero or empty
  std::int64_t* non_finite;  // a counter
  // Copies of scale and zero_point for this pass; the next step changes the originals.
  float* pass_scale;
  std::int32_t* pass_zero_point;
};

STEELYARD_HOST_DEVICE inline bool is_finite(float value) { return value - value == 0.0F; }

// *counter += met, whatever other threads do; counter may be null.
STEELYARD_HOST_DEVICE inline void count(std::int64_t met, std::int64_t* counter) {
  if (met == 0 || counter == nullptr) return;
#ifdef __CUDA_ARCH__
  atomicAdd(reinterpret_cast<unsigned long long*>(counter), static_cast<unsigned long long>(met));
#else
  __atomic_fetch_add(counter, met, __ATOMIC_RELAXED);
#endif
}

// Extremes of the finite values met so far; the others are counted.
struct FiniteExtremes {
  float lo = INFINITY;
  float hi = -INFINITY;
  std::int64_t skipped = 0;

  STEELYARD_HOST_DEVICE void take(float value) {
    const bool finite = is_finite(value);
    lo = finite && value < lo ? value : lo;
    hi = finite && value > hi ? value : hi;
    skipped += finite ? 0 : 1;
  }
  STEELYARD_HOST_DEVICE void join(const FiniteExtremes& other) {
    lo = other.lo < lo ? other.lo : lo;
    hi = other.hi > hi ? other.hi : hi;
    skipped += other.skipped;
  }
  // What an observer takes of n values: zeros are +0.
  STEELYARD_HOST_DEVICE FiniteExtremes observed(std::int64_t) const {
    return {lo + 0.0F, hi + 0.0F, skipped};
  }
};

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

// The scale of weights that are all zero, with a bias of this magnitude > 0.
STEELYARD_HOST_DEVICE inline double weight_scale_of_bias(double bias, double x_scale) {
  return power_of_two_above(bias / (x_scale * 0x1p20));
}

// |b| where it is finite and larger, else `largest`.
STEELYARD_HOST_DEVICE inline float larger_magnitude(float largest, float b) {
  const float magnitude = b < 0 ? -b : b;
  return is_finite(b) && magnitude > largest ? magnitude : largest;
}

// A weight scale raised to what the largest bias of its channels needs, and the least it needs.
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

// The largest bias code with sums of products that are no larger than `largest_sum`: no sum with
// it leaves int32. It is a float's integer part below 2^31, so that no saturated code fits.
STEELYARD_HOST_DEVICE inline std::int32_t bias_room(std::int64_t largest_sum) {
  constexpr std::int64_t kLargestFloat = INT32_MAX - 127;
  const std::int64_t room = INT32_MAX - largest_sum;
  return static_cast<std::int32_t>(room < 0 ? 0 : (room > kLargestFloat ? kLargestFloat : room));
}

// Sums of so many products of at most `largest` leave room for every bias that its weights' scale
// was fitted to: 2^30 and what rounding a scale adds. Only longer ones need be looked at.
STEELYARD_HOST_DEVICE inline bool sums_leave_room(std::int64_t products, std::int64_t largest) {
  return products <= ((std::int64_t{1} << 30) - 256) / largest;
}

// A bias in int32 codes of this scale, and whether it is finite and has room.
struct BiasCode {
  std::int32_t code;
  bool finite;
  bool fits;
};
STEELYARD_HOST_DEVICE inline BiasCode bias_code(float bias, float product_scale,
                                                std::int32_t room) {
  if (!is_finite(bias)) return {0, false, true};
  const std::int32_t code = quantize_bias(bias, product_scale);
  if (code > room) return {room, true, false};
  if (code < -room) return {-room, true, false};
  return {code, true, true};
}

// A scale that nothing fits any more, with its floor: they stay while a bias of this magnitude has
// room with products whose sum is no larger than `largest_sum`, and are fitted where it has not.
// Fitted again with the same bias they stay.
STEELYARD_HOST_DEVICE inline FittedScale keep_room(const FittedScale& kept, float largest_bias,
                                                   float x_scale, std::int64_t largest_sum) {
  constexpr std::int32_t kFitted = (1 << 30) + 128;  // no fitted scale gives a larger code
  constexpr float kSmallestNormal = 0x1p-126F;
  const std::int32_t room = bias_room(largest_sum);
  const float product = x_scale * kept.scale;
  const bool holds = product >= kSmallestNormal &&
                     bias_code(largest_bias, product, room < kFitted ? kFitted : room).fits;
  return holds ? kept : fit_weight_scale(kept.scale, false, largest_bias, x_scale);
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

// The zero point of a learned offset, the real value that the lowest code stands for: as near as a
// code comes to it. offset_of() gives the offset of a zero point.
STEELYARD_HOST_DEVICE inline std::int32_t zero_point_of_offset(float offset, float scale,
                                                               CodeRange range) {
  return static_cast<std::int32_t>(zero_point_of_lowest(offset, scale, range));
}
STEELYARD_HOST_DEVICE inline float offset_of(std::int32_t zero_point, float scale,
                                             CodeRange range) {
  return dequantize_code(static_cast<float>(range.qmin), static_cast<float>(zero_point), scale);
}

// The latents of a scale and, where offset is not null, of a zero point move them as far as they
// are finite. Returns whether all are.
STEELYARD_HOST_DEVICE inline bool follow_latents(float latent, float initial, float floor,
                                                 const float* offset, CodeRange range,
                                                 QParams<float>& qparams) {
  const bool moves = is_finite(latent);
  if (moves) qparams.scale = scale_of_latent(latent, initial, floor, range);
  if (offset == nullptr || !moves) return moves;
  if (!is_finite(*offset)) return false;
  qparams.zero_point = zero_point_of_offset(*offset, qparams.scale, range);
  return true;
}

// The slope of scale_of_latent, from its value.
STEELYARD_HOST_DEVICE inline float latent_slope(float scale, float initial) {
  const float ratio = scale / initial;
  return ratio < 1.0F ? ratio : 1.0F;
}

// From the gradients of scale and zero point, each with the other held, to those of the latents of
// scale and offset (Bhalgat et al., arXiv:2004.09576), through z = qmin - offset / s with the
// rounding passed straight through: d offset = -dz / s, and s moves z as well: ds + dz (qmin - z) /
// s. Beyond the offsets that codes can stand for z no longer moves: there s moves alone, and the
// offset gets only gradients that lead it back.
struct LatentGradients {
  float scale;
  float offset;
};
STEELYARD_HOST_DEVICE inline LatentGradients latent_gradients(CodeRange range, float scale,
                                                              float initial,
                                                              std::int32_t zero_point, float offset,
                                                              LatentGradients of_qparams) {
  const double place = range.qmin - static_cast<double>(offset) / scale;
  float of_offset = -of_qparams.offset / scale;
  float of_scale = of_qparams.scale;
  if (place < range.qmin) {
    of_offset = of_offset < 0 ? 0.0F : of_offset;
  } else if (place > range.qmax) {
    of_offset = of_offset > 0 ? 0.0F : of_offset;
  } else {
    of_scale += of_offset * static_cast<float>(zero_point - range.qmin);
  }
  return {of_scale * latent_slope(scale, initial), of_offset};
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
STEELYARD_HOST_DEVICE inline QParams<float> follow_extremes(const RangeRule& rule, float& lo,
                                                            float& hi, std::int64_t* steps,
                                                            float step_lo, float step_hi) {
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

// follow_extremes() for a quantizer with one scale, and for all that it keeps.
STEELYARD_HOST_DEVICE inline void follow_extremes(const RangeRule& rule, const RangeQuantizer& to,
                                                  float step_lo, float step_hi) {
  const auto chosen = follow_extremes(rule, *to.lo, *to.hi, to.steps, step_lo, step_hi);
  *to.scale = *to.pass_scale = chosen.scale;
  *to.zero_point = *to.pass_zero_point = chosen.zero_point;
  *to.zero_range = is_zero_range(*to.lo, *to.hi) ? 1 : 0;
}

// The scale and zero point of the same range in codes of another width.
STEELYARD_HOST_DEVICE inline QParams<float> rescaled_qparams(const QParams<float>& qparams,
                                                             CodeRange from, CodeRange to,
                                                             bool symmetric) {
  const double ratio = double(from.qmax - from.qmin) / (to.qmax - to.qmin);
  const double place = (qparams.zero_point - from.qmin) / ratio + to.qmin;
  return {bounded_scale<float>(qparams.scale * ratio, to.qmax - to.qmin),
          symmetric ? qparams.zero_point : static_cast<std::int32_t>(round_half_even(place))};
}

}  // namespace steelyard::kernels
