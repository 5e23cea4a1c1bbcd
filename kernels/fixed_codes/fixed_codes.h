// Functions of s8 codes in fixed point (kernels/fixed_functions.h), where ActivationTable,
// MultiplyCodes and SoftmaxCodes are what floats round.
//
// Scales and zero points are pointers to one value, where the codes are. `rounding` is one of the
// fixed ones.
#pragma once

#include "steelyard/kernels/activation/activation.h"
#include "steelyard/kernels/broadcast/broadcast.h"
#include "steelyard/kernels/fixed_functions.h"
#include "steelyard/kernels/run.h"
#include "steelyard/kernels/softmax/softmax.h"

namespace steelyard::kernels {

// The unclamped code of an activation that has such a form: of x, a code less its zero point.
struct FixedActivation {
  ActivationFunction activation;
  Rounding rounding;
  std::int32_t zero_point;  // of the output
  FixedInput steep;         // of Sigmoid and Tanh
  FixedHardSwish hard_swish;
  FixedLeakyRelu leaky_relu;

  STEELYARD_HOST_DEVICE std::int32_t operator()(std::int32_t x) const {
    if (activation == ActivationFunction::kSigmoid) {
      return fixed_logistic_code(x, steep, rounding);
    }
    if (activation == ActivationFunction::kTanh) return fixed_tanh_code(x, steep, rounding);
    if (activation == ActivationFunction::kHardswish) {
      return wrapped_sum(fixed_hard_swish(x, hard_swish), zero_point);
    }
    return fixed_code(x, x >= 0 ? leaky_relu.identity : leaky_relu.slope, zero_point, rounding);
  }
};

// Sigmoid, Tanh, Hardswish and LeakyReLU with a slope that is not negative.
STEELYARD_HOST_DEVICE inline bool has_fixed_form(ActivationFunction activation) {
  return activation == ActivationFunction::kSigmoid || activation == ActivationFunction::kTanh ||
         activation == ActivationFunction::kHardswish ||
         activation == ActivationFunction::kLeakyRelu;
}

STEELYARD_HOST_DEVICE inline FixedActivation make_fixed_activation(ActivationFunction activation,
                                                                   float in_scale, float scale,
                                                                   std::int32_t zero_point,
                                                                   const Ramp& ramp,
                                                                   Rounding rounding) {
  FixedActivation made{activation, rounding, zero_point, {}, {}, {}};
  if (activation == ActivationFunction::kSigmoid || activation == ActivationFunction::kTanh) {
    made.steep = make_fixed_logistic(in_scale, rounding);
  } else if (activation == ActivationFunction::kHardswish) {
    made.hard_swish = make_fixed_hard_swish(in_scale, scale, rounding);
  } else {
    made.leaky_relu =
        make_fixed_leaky_relu(in_scale, static_cast<float>(ramp.slope), scale, rounding);
  }
  return made;
}

// For each byte that may be a code of the input the output's code (its byte), and the slope, 0
// where the code is clipped. n = 256.
struct FixedActivationTable {
  static constexpr std::int64_t kGrain = 256;
  std::int64_t n;
  ActivationFunction activation;
  Rounding rounding;
  const float* in_scale;
  const std::int32_t* in_zero_point;
  const float* scale;
  const std::int32_t* zero_point;
  CodeRange range;
  std::uint8_t* codes;
  float* slopes;
  Ramp ramp;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int32_t x = static_cast<std::int32_t>(i >= 128 ? i - 256 : i) - *in_zero_point;
    const std::int32_t code =
        make_fixed_activation(activation, *in_scale, *scale, *zero_point, ramp, rounding)(x);
    const bool inside = code >= range.qmin && code <= range.qmax;
    const std::int32_t raised = code < range.qmin ? range.qmin : code;
    codes[i] = static_cast<std::uint8_t>(raised > range.qmax ? range.qmax : raised);
    slopes[i] = inside ? exact_slope(activation, static_cast<float>(x) * *in_scale, ramp) : 0.0F;
  }
};

// For each byte that may be a code of the input the unclamped code on another grid. n = 256.
struct FixedRescaleTable {
  static constexpr std::int64_t kGrain = 256;
  std::int64_t n;
  Rounding rounding;
  const float* in_scale;
  const std::int32_t* in_zero_point;
  const float* scale;
  const std::int32_t* zero_point;
  float* codes;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int32_t x = static_cast<std::int32_t>(i >= 128 ? i - 256 : i) - *in_zero_point;
    codes[i] = static_cast<float>(
        fixed_code(x, fixed_rescale(*in_scale, *scale, rounding), *zero_point, rounding));
  }
};

// The unclamped codes of products of codes whose shapes broadcast.
struct FixedMultiplyCodes {
  static constexpr std::int64_t kGrain = 4096;
  std::int64_t n;
  Rounding rounding;
  CodesOf<std::int8_t> a;
  StridedIndex at_a;
  CodesOf<std::int8_t> b;
  StridedIndex at_b;
  const float* scale;
  const std::int32_t* zero_point;
  float* y;

  struct Body {
    const std::int8_t *a, *b;
    std::int32_t zero_a, zero_b, zero_point;
    FixedMultiplier factor;
    Rounding rounding;
    float* y;
    STEELYARD_HOST_DEVICE void operator()(std::int64_t i, std::int64_t in_a,
                                          std::int64_t in_b) const {
      const std::int32_t product = (a[in_a] - zero_a) * (b[in_b] - zero_b);
      y[i] = static_cast<float>(fixed_code(product, factor, zero_point, rounding));
    }
  };
  STEELYARD_HOST_DEVICE Body body() const {
    return {a.codes,       b.codes,
            *a.zero_point, *b.zero_point,
            *zero_point,   fixed_mul(*a.scale, *b.scale, *scale, rounding),
            rounding,      y};
  }
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const { body()(i, at_a(i), at_b(i)); }
};

// Softmax of rows of codes; codes of scale 2^-8 from -128 on.
struct FixedSoftmaxCodes {
  std::int64_t rows, columns;
  Rounding rounding;
  const std::int8_t* x;
  const float* in_scale;
  std::int8_t* codes;

  template <class Team>
  STEELYARD_HOST_DEVICE void row(std::int64_t r, const Team& team) const {
    const std::int8_t* from = x + r * columns;
    const auto value = [from](std::int64_t c) { return static_cast<float>(from[c]); };
    const auto largest = static_cast<std::int32_t>(team.template largest<float>(columns, value));
    const FixedInput input = make_fixed_softmax(*in_scale, rounding);
    const auto exponential = [&](std::int64_t c) {
      return fixed_softmax_exp(from[c] - largest, input, rounding);
    };
    std::uint64_t sum = 0;
    team.each(columns, [&](std::int64_t c) {
      sum += static_cast<std::uint64_t>(fixed_softmax_term(exponential(c)));
    });
    sum = sum_of(team, sum);
    const FixedShare share = make_fixed_share(static_cast<std::int32_t>(sum));
    team.each(columns, [&](std::int64_t c) {
      const std::int32_t code = fixed_share_code(exponential(c), share);
      codes[r * columns + c] = static_cast<std::int8_t>(code > 127 ? 127 : code);
    });
  }
};

using FixedCodesKernels =
    KernelList<FixedActivationTable, FixedRescaleTable, FixedMultiplyCodes, FixedSoftmaxCodes>;

}  // namespace steelyard::kernels
