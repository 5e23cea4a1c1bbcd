// Functions of codes in fixed point, host and device, as TFLite Micro's reference kernels compute
// them: codes on another grid, logistic, tanh, hard swish, leaky ReLU, softmax and LSTM.
// Source: reference/ and micro/kernels/ of tflite-micro (requantize, integer_ops/logistic and
// tanh, hard_swish, leaky_relu, softmax, lstm_eval), its common.h and gemmlowp's fixedpoint.h,
// whose numbers these are.
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

// --- lstm: gates of 16 bits, around 0

// The scales of what gates are functions of, of gates, and of cells, which reach from -16 to 16.
inline constexpr float kGateSumScale = 0x1p-12F, kGateScale = 0x1p-15F, kCellScale = 0x1p-11F;

// About 2^16 / (1 + exp(-i / 24)) for i from 0 to 255: lines between these are near the function.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_logistic_entry(std::int32_t i) {
  static constexpr std::uint16_t kEntries[] = {
      32768, 33451, 34133, 34813, 35493, 36169, 36843, 37513, 38180, 38841, 39498, 40149, 40794,
      41432, 42064, 42688, 43304, 43912, 44511, 45102, 45683, 46255, 46817, 47369, 47911, 48443,
      48964, 49475, 49975, 50464, 50942, 51409, 51865, 52311, 52745, 53169, 53581, 53983, 54374,
      54755, 55125, 55485, 55834, 56174, 56503, 56823, 57133, 57433, 57724, 58007, 58280, 58544,
      58800, 59048, 59288, 59519, 59743, 59959, 60168, 60370, 60565, 60753, 60935, 61110, 61279,
      61441, 61599, 61750, 61896, 62036, 62172, 62302, 62428, 62549, 62666, 62778, 62886, 62990,
      63090, 63186, 63279, 63368, 63454, 63536, 63615, 63691, 63765, 63835, 63903, 63968, 64030,
      64090, 64148, 64204, 64257, 64308, 64357, 64405, 64450, 64494, 64536, 64576, 64614, 64652,
      64687, 64721, 64754, 64786, 64816, 64845, 64873, 64900, 64926, 64950, 64974, 64997, 65019,
      65039, 65060, 65079, 65097, 65115, 65132, 65149, 65164, 65179, 65194, 65208, 65221, 65234,
      65246, 65258, 65269, 65280, 65291, 65301, 65310, 65319, 65328, 65337, 65345, 65352, 65360,
      65367, 65374, 65381, 65387, 65393, 65399, 65404, 65410, 65415, 65420, 65425, 65429, 65433,
      65438, 65442, 65445, 65449, 65453, 65456, 65459, 65462, 65465, 65468, 65471, 65474, 65476,
      65479, 65481, 65483, 65485, 65488, 65489, 65491, 65493, 65495, 65497, 65498, 65500, 65501,
      65503, 65504, 65505, 65507, 65508, 65509, 65510, 65511, 65512, 65513, 65514, 65515, 65516,
      65517, 65517, 65518, 65519, 65520, 65520, 65521, 65522, 65522, 65523, 65523, 65524, 65524,
      65525, 65525, 65526, 65526, 65526, 65527, 65527, 65528, 65528, 65528, 65529, 65529, 65529,
      65529, 65530, 65530, 65530, 65530, 65531, 65531, 65531, 65531, 65531, 65532, 65532, 65532,
      65532, 65532, 65532, 65533, 65533, 65533, 65533, 65533, 65533, 65533, 65533, 65534, 65534,
      65534, 65534, 65534, 65534, 65534, 65534, 65534, 65534, 65535};
  return kEntries[i];
}

// The same at x / 2^bits with as many more bits, 0 <= x < 255 * 2^bits.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_logistic_between(std::int32_t x, int bits) {
  const std::int32_t before = fixed_logistic_entry(x >> bits);
  const std::int32_t after = fixed_logistic_entry((x >> bits) + 1);
  return before * (1 << bits) + (x & ((1 << bits) - 1)) * (after - before);
}

// 1 / (1 + exp(-x)) with 15 bits behind the point for x of 16 bits with 12.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_logistic_of_16_bits(std::int32_t x) {
  const std::int32_t share = fixed_logistic_between(3 * (x < 0 ? -x : x), 9);
  return (x < 0 ? (1 << 25) - share + 511 : share + 512) >> 10;
}

// tanh(x) with 15 bits behind the point for x of 16 bits with 12 - left; the steepness of the
// logistic function's.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_tanh_of_16_bits(std::int32_t x, int left) {
  const std::int32_t size = 3 * (x < 0 ? -x : x) * (1 << left);
  const std::int32_t share =
      size < 255 << 8 ? fixed_logistic_between(size, 8) : UINT16_MAX * (1 << 8);
  return (x < 0 ? (1 << 23) - share + 127 : share - (1 << 23) + 128) >> 8;
}

struct FixedLstm {
  FixedMultiplier of_input, of_state;  // from sums of weights times codes to what gates are made of
  FixedMultiplier kept, added;         // from products of gates to cells
  FixedMultiplier output;              // from a gate times the cell's tanh to codes
  std::int32_t zero_point = 0;         // of these
};

STEELYARD_HOST_DEVICE inline FixedLstm make_fixed_lstm(float in_scale, float weight_scale,
                                                       float recurrent_scale, float scale,
                                                       std::int32_t zero_point, Rounding rounding) {
  return {fixed_mul(in_scale, weight_scale, kGateSumScale, rounding),
          fixed_mul(scale, recurrent_scale, kGateSumScale, rounding),
          fixed_mul(kGateScale, kCellScale, kCellScale, rounding),
          fixed_mul(kGateScale, kGateScale, kCellScale, rounding),
          fixed_mul(kGateScale, kGateScale, scale, rounding),
          zero_point};
}

// A unit after a step: its cell, and its output's code, which is not clamped.
struct FixedLstmUnit {
  std::int32_t cell = 0, code = 0;
};

// Of the sums of weights times codes less their zero points, those of the input with the bias, for
// the gates input, output, forget and cell; `cell` is that of the step before.
STEELYARD_HOST_DEVICE inline FixedLstmUnit fixed_lstm_unit(const FixedLstm& of,
                                                           const std::int32_t (&of_input)[4],
                                                           const std::int32_t (&of_state)[4],
                                                           std::int32_t cell, Rounding rounding) {
  const auto product = [rounding](std::int32_t x, FixedMultiplier by) {
    return clamped_to_16_bits(fixed_product(x, by, rounding));
  };
  const auto sum = [&](int gate) {
    return clamped_to_16_bits(product(of_input[gate], of.of_input) +
                              product(of_state[gate], of.of_state));
  };
  const std::int32_t added = fixed_logistic_of_16_bits(sum(0)) * fixed_tanh_of_16_bits(sum(3), 0);
  const std::int32_t kept = fixed_logistic_of_16_bits(sum(2)) * cell;
  FixedLstmUnit unit;
  unit.cell = clamped_to_16_bits(product(kept, of.kept) + product(added, of.added));
  const std::int32_t output =
      fixed_tanh_of_16_bits(unit.cell, 1) * fixed_logistic_of_16_bits(sum(1));
  unit.code = fixed_code(output, of.output, of.zero_point, rounding);
  return unit;
}

}  // namespace steelyard::kernels
