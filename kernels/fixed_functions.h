// Functions of codes in fixed point, host and device, as TFLite Micro's reference kernels compute
// them: codes on another grid, logistic, tanh, hard swish, leaky ReLU and softmax.
// Source: reference/ and micro/kernels/ of tflite-micro (requantize, integer_ops/logistic and
// tanh, hard_swish, leaky_relu, softmax), and gemmlowp's fixedpoint.h, whose numbers these are.
//
// A number Qn has n integer bits and 31 - n behind the point.
#pragma once

#include <cmath>
#include <cstdint>

#include "steelyard/kernels/fixed_point.h"

namespace steelyard::kernels {

// --- codes on another grid

// The factor from codes of one scale to those of another.
STEELYARD_HOST_DEVICE inline FixedMultiplier fixed_rescale(float in_scale, float scale,
                                                           Rounding rounding) {
  return make_fixed_multiplier(static_cast<double>(in_scale) / static_cast<double>(scale),
                               rounding);
}

// Positive and negative inputs of a leaky ReLU, whose slope is not negative.
struct FixedLeakyRelu {
  FixedMultiplier identity, slope;
};

STEELYARD_HOST_DEVICE inline FixedLeakyRelu make_fixed_leaky_relu(float in_scale, float slope,
                                                                  float scale, Rounding rounding) {
  return {fixed_rescale(in_scale, scale, rounding), fixed_mul(in_scale, slope, scale, rounding)};
}

// --- numbers of 31 bits

// The product of two numbers, an integer bit for each of theirs.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_times(std::int32_t a, std::int32_t b) {
  return a == INT32_MIN && b == INT32_MIN ? INT32_MAX : doubled_high_product(a, b);
}

// x * 2^left, the largest or smallest number where it does not fit.
STEELYARD_HOST_DEVICE inline std::int32_t saturated_left(std::int32_t x, std::int32_t left) {
  const std::int64_t wide = static_cast<std::int64_t>(x) * (std::int64_t{1} << left);
  if (wide > INT32_MAX) return INT32_MAX;
  return wide < INT32_MIN ? INT32_MIN : static_cast<std::int32_t>(wide);
}

// exp(a) in Q0 for a in [-1/4, 0) in Q0: a Taylor series around -1/8.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_exp_of_quarter(std::int32_t a) {
  constexpr std::int32_t kExpOfMinusEighth = 1895147668, kThird = 715827883;
  const std::int32_t x = a + (1 << 28);
  const std::int32_t x2 = fixed_times(x, x);
  const std::int32_t x3 = fixed_times(x2, x);
  const std::int32_t x4_by_4 = divided_by_power(fixed_times(x2, x2), 2);
  const std::int32_t rest =
      divided_by_power(wrapped_sum(fixed_times(wrapped_sum(x4_by_4, x3), kThird), x2), 1);
  return wrapped_sum(kExpOfMinusEighth, fixed_times(kExpOfMinusEighth, wrapped_sum(x, rest)));
}

// exp(a) in Q0 for a <= 0 with `bits` integer bits, 4 or 5: of a's last quarter, times a factor for
// each bit before it.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_exp_of_negative(std::int32_t a, int bits) {
  constexpr std::int32_t kFactors[] = {1672461947, 1302514674, 790015084, 290630308,
                                       39332535,   720401,     242};  // exp(-1/4), exp(-1/2), ...
  if (a == 0) return INT32_MAX;
  const int fraction = 31 - bits;
  const std::int32_t quarter = 1 << (fraction - 2);
  const std::int32_t last = (a & (quarter - 1)) - quarter;
  std::int32_t result = fixed_exp_of_quarter(saturated_left(last, bits));
  const std::int32_t rest = last - a;
  for (int i = 0; i < bits + 2; ++i) {
    const bool there = ((rest >> (fraction - 2 + i)) & 1) != 0;
    if (there) result = fixed_times(result, kFactors[i]);
  }
  return result;
}

inline constexpr std::int32_t kOneOf2Bits = 1 << 29;  // in Q2

// 2 / (1 + a) in Q2 for a in [0, 1) in Q0: three steps of Newton's method.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_twice_inverse_of_one_plus(std::int32_t a) {
  constexpr std::int32_t kStart = 1515870810, kSlope = -1010580540;  // 48/17, -32/17 in Q2
  const auto half = static_cast<std::int32_t>((static_cast<std::int64_t>(a) + INT32_MAX + 1) / 2);
  std::int32_t x = wrapped_sum(kStart, fixed_times(half, kSlope));
  for (int i = 0; i < 3; ++i) {
    const std::int32_t error = kOneOf2Bits - fixed_times(half, x);
    x = wrapped_sum(x, saturated_left(fixed_times(x, error), 2));
  }
  return x;
}

// 1 / (1 + a) in Q0 for a in [0, 1) in Q0.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_inverse_of_one_plus(std::int32_t a) {
  return saturated_left(fixed_twice_inverse_of_one_plus(a), 1);
}

// -|a|, the smallest number where that is a.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_below_zero(std::int32_t a) {
  return a > 0 ? static_cast<std::int32_t>(0U - static_cast<std::uint32_t>(a)) : a;
}

// 1 / (1 + exp(-a)) in Q0 for a in Q4.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_logistic(std::int32_t a) {
  if (a == 0) return 1 << 30;
  const std::int32_t below = fixed_below_zero(a);
  const std::int32_t share = fixed_inverse_of_one_plus(fixed_exp_of_negative(below, 4));
  return a > 0 ? share : INT32_MAX - share;
}

// tanh(a) in Q0 for a in Q4: (1 - e) / (1 + e) of e = exp(-2 |a|), which is a's own number in Q5.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_tanh(std::int32_t a) {
  if (a == 0) return 0;
  const std::int32_t e = fixed_exp_of_negative(fixed_below_zero(a), 5);
  const std::int32_t result = saturated_left(fixed_twice_inverse_of_one_plus(e) - kOneOf2Bits, 2);
  return a > 0 ? result : -result;
}

// Inputs of functions that are steep near 0 alone: multiplied by a factor, they have some integer
// bits; from `radius` on, the function has its last value.
struct FixedInput {
  FixedMultiplier by;
  std::int32_t radius = 0;
};

STEELYARD_HOST_DEVICE inline FixedInput make_fixed_input(float in_scale, int bits, double most,
                                                         Rounding rounding) {
  const double factor = static_cast<double>(in_scale) * static_cast<double>(1 << (31 - bits));
  const FixedMultiplier by = make_fixed_multiplier(factor < most ? factor : most, rounding);
  const double reach = static_cast<double>((1 << bits) - 1) *
                       static_cast<double>(std::int64_t{1} << (31 - bits)) /
                       static_cast<double>(std::int64_t{1} << (by.shift > 0 ? by.shift : 0));
  return {by, static_cast<std::int32_t>(std::floor(reach))};
}

// A scale of inputs with such a factor: its shift is not negative, and it fits 31 bits.
STEELYARD_HOST_DEVICE inline bool has_fixed_input(float in_scale, int bits) {
  const double factor = static_cast<double>(in_scale) * static_cast<double>(1 << (31 - bits));
  return factor > 1 && factor < 1073741824.0;
}

// --- logistic: codes of scale 2^-8 from -128 on

inline constexpr int kLogisticBits = 4;

STEELYARD_HOST_DEVICE inline FixedInput make_fixed_logistic(float in_scale, Rounding rounding) {
  return make_fixed_input(in_scale, kLogisticBits, 2147483648.0, rounding);
}

// The unclamped code of a code less its zero point.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_logistic_code(std::int32_t x, FixedInput input,
                                                              Rounding rounding) {
  if (x <= -input.radius) return -128;
  if (x >= input.radius) return 127;
  return divided_by_power(fixed_logistic(fixed_product(x, input.by, rounding)), 23) - 128;
}

// --- tanh: codes of scale 2^-7 around 0, of an input as the logistic function's

// The unclamped code of a code less its zero point.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_tanh_code(std::int32_t x, FixedInput input,
                                                          Rounding rounding) {
  if (x <= -input.radius) return -128;
  if (x >= input.radius) return 127;
  return divided_by_power(fixed_tanh(fixed_product(x, input.by, rounding)), 24);
}

// --- hard swish, in 16 bits

struct FixedHardSwish {
  std::int32_t output = 0, output_shift = 0;  // multipliers of 15 bits, powers of two
  std::int32_t gate = 0, gate_shift = 0;
};

STEELYARD_HOST_DEVICE inline std::int32_t multiplier_of_15_bits(std::int32_t multiplier) {
  return multiplier >= INT32_MAX - (1 << 15) ? INT16_MAX : (multiplier + (1 << 15)) >> 16;
}

STEELYARD_HOST_DEVICE inline FixedHardSwish make_fixed_hard_swish(float in_scale, float scale,
                                                                  Rounding rounding) {
  const float fine = (1.0F / 128.0F) * in_scale;
  const FixedMultiplier output = fixed_rescale(fine, scale, rounding);
  const FixedMultiplier gate = fixed_rescale(fine, 3.0F / 32768.0F, rounding);
  const auto between = [](std::int32_t shift, std::int32_t most) {
    if (shift > most) return most;
    return shift < -15 ? -15 : shift;
  };
  // From 16 on, all but 0 are the largest.
  return {multiplier_of_15_bits(output.multiplier), between(output.shift, 0),
          multiplier_of_15_bits(gate.multiplier), between(gate.shift, 16)};
}

// Scales that its 16 bits have room for.
STEELYARD_HOST_DEVICE inline bool has_fixed_hard_swish(float in_scale, float scale) {
  const float ratio = in_scale / 128.0F / scale;
  return ratio < 0.999F && ratio > 0x1p-15F && in_scale > 0x1p-20F;
}

STEELYARD_HOST_DEVICE inline std::int32_t clamped_to_16_bits(std::int32_t x) {
  if (x > INT16_MAX) return INT16_MAX;
  return x < INT16_MIN ? INT16_MIN : x;
}

// (a * b + 2^14) / 2^15 of numbers of 16 bits: halves go up.
STEELYARD_HOST_DEVICE inline std::int32_t times_of_16_bits(std::int32_t a, std::int32_t b) {
  return (a * b + (1 << 14)) >> 15;
}

// The code less the output's zero point, of a code less its own.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_hard_swish(std::int32_t x,
                                                           const FixedHardSwish& of) {
  const std::int32_t fine = x * 128;
  std::int32_t gate = fine;
  if (of.gate_shift > 0) {
    const std::int64_t wide = static_cast<std::int64_t>(gate) << (of.gate_shift - 1);
    gate = wide > INT16_MAX   ? INT16_MAX
           : wide < INT16_MIN ? INT16_MIN
                              : static_cast<std::int32_t>(wide);
  }
  gate = times_of_16_bits(gate, of.gate);
  if (of.gate_shift > 0) gate = clamped_to_16_bits(2 * gate);
  if (of.gate_shift < 0) gate = divided_by_power(gate, -of.gate_shift);
  gate = (gate + (1 << 15)) >> 1;
  const std::int32_t product = gate * times_of_16_bits(fine, of.output) / (1 << 15);  // to 0
  return divided_by_power(product, -of.output_shift);
}

// --- softmax: codes of scale 2^-8 from -128 on

inline constexpr int kSoftmaxBits = 5, kSoftmaxSumBits = 12;

STEELYARD_HOST_DEVICE inline FixedInput make_fixed_softmax(float in_scale, Rounding rounding) {
  const double most = rounding == Rounding::kFixedOnce ? 1073741823.0 : 2147483647.0;
  return make_fixed_input(in_scale, kSoftmaxBits, most, rounding);
}

// exp() in Q0 of a code less the row's largest one; 0 where that is too small to count.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_softmax_exp(std::int32_t below, FixedInput input,
                                                            Rounding rounding) {
  if (below < -input.radius) return 0;
  return fixed_exp_of_negative(fixed_product(below, input.by, rounding), kSoftmaxBits);
}
// What the row's sum gets of it.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_softmax_term(std::int32_t exponential) {
  return divided_by_power(exponential, kSoftmaxSumBits);
}

// The inverse of a row's sum: inverse * 2^-shift.
struct FixedShare {
  std::int32_t inverse = 0, shift = 0;
};

STEELYARD_HOST_DEVICE inline FixedShare make_fixed_share(std::int32_t sum) {
  std::int32_t zeros = 0;  // before its first bit
  while (zeros < 31 && (static_cast<std::uint32_t>(sum) >> (31 - zeros)) == 0) ++zeros;
  const auto fraction = static_cast<std::int32_t>((static_cast<std::uint32_t>(sum) << zeros) -
                                                  (std::uint32_t{1} << 31));
  return {fixed_inverse_of_one_plus(fraction), kSoftmaxSumBits - zeros + 31 - 8};
}

// The unclamped code of an element with this exponential.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_share_code(std::int32_t exponential,
                                                           FixedShare share) {
  return divided_by_power(fixed_times(share.inverse, exponential), share.shift) - 128;
}

}  // namespace steelyard::kernels
