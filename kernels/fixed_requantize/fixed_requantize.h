// Requantization in fixed point (kernels/fixed_point.h): what RequantizeAccumulators, RequantizeAdd
// and RequantizeAverage (kernels/requantize/requantize.h) are where codes are rounded as floats.
//
// Scales and zero points are pointers to one value, where the codes are. `rounding` is one of the
// fixed ones, masks are packed bits and may be null. Codes are s8.
#pragma once

#include "steelyard/kernels/fixed_point.h"
#include "steelyard/kernels/requantize/formulas.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// The factors of n channels: multiplier and shift [n]. weight_scale has one value or n.
struct FixedMultipliers {
  static constexpr std::int64_t kGrain = 64;
  std::int64_t n, scales;
  Rounding rounding;
  const float *in_scale, *weight_scale, *scale;
  std::int32_t *multiplier, *shift;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const FixedMultiplier by =
        fixed_mul(*in_scale, weight_scale[scales == 1 ? 0 : i], *scale, rounding);
    multiplier[i] = by.multiplier;
    shift[i] = by.shift;
  }
};

// The output's quantization: its range decides the mask, what the activation leaves of it clamps
// the codes.
struct FixedCodes {
  CodeRange full;
  CodeRange clamped;
  LinearPart linear;

  STEELYARD_HOST_DEVICE std::int32_t code(std::int32_t unclamped) const {
    const std::int32_t raised = unclamped < clamped.qmin ? clamped.qmin : unclamped;
    return raised > clamped.qmax ? clamped.qmax : raised;
  }
  STEELYARD_HOST_DEVICE bool passes(std::int32_t unclamped, float real) const {
    const bool inside = (unclamped >= full.qmin) & (unclamped <= full.qmax);
    const bool passed = linear.contains(real);
    return inside & passed;
  }
};

STEELYARD_HOST_DEVICE inline FixedCodes fixed_codes(Activation activation, CodeRange range,
                                                    float scale, std::int32_t zero_point) {
  return {range, fixed_activation_code_range(activation, range, scale, zero_point),
          linear_part(activation)};
}

// codes = clamp(fixed_code(acc + bias)) with the factors of FixedMultipliers, clamped further by
// the activation. Bias codes [channels] may be null; product_scale as in RequantizeAccumulators,
// whose mask this has.
struct FixedRequantize {
  Requantize op;
  Rounding rounding;
  const std::int32_t *acc, *bias;
  const float* product_scale;
  const std::int32_t *multiplier, *shift;
  const float* scale;
  const std::int32_t* zero_point;
  CodeRange range;
  std::int8_t* codes;
  std::uint8_t* mask;
};

// codes = clamp(fixed_add_code(a, b)); the mask as RequantizeAdd has it.
struct FixedRequantizeAdd {
  std::int64_t n;
  Rounding rounding;
  Activation activation;
  CodesOf<std::int8_t> a, b;
  const float* scale;
  const std::int32_t* zero_point;
  CodeRange range;
  std::int8_t* codes;
  std::uint8_t* mask;
};

// The codes of n averages from sums of code - zero point: a global one has a grid of its own, a
// window keeps that of its input. mask = packed bits of the unclamped code inside the range.
struct FixedRequantizeAverage {
  std::int64_t n;
  Rounding rounding;
  Average average;
  const std::int32_t* sums;
  const float *in_scale, *scale;
  const std::int32_t* zero_point;
  CodeRange range;
  std::int8_t* codes;
  std::uint8_t* mask;
};

// How the sums of averages become codes.
struct FixedAverager {
  Average average;
  Rounding rounding;
  FixedMultiplier by;
  std::int32_t zero_point;

  STEELYARD_HOST_DEVICE std::int32_t operator()(std::int32_t sum) const {
    if (average.kind == Average::Kind::kGlobal) return fixed_code(sum, by, zero_point, rounding);
    const auto count = static_cast<std::int32_t>(average.count);
    return averaged_code(sum + count * zero_point, count);
  }
};

STEELYARD_HOST_DEVICE inline FixedAverager fixed_averager(const Average& average, float in_scale,
                                                          float scale, std::int32_t zero_point,
                                                          Rounding rounding) {
  return {average, rounding, fixed_mean(in_scale, average.count, scale, rounding), zero_point};
}

using FixedRequantizeKernels =
    KernelList<FixedMultipliers, FixedRequantize, FixedRequantizeAdd, FixedRequantizeAverage>;

}  // namespace steelyard::kernels
