// What follows integer products and sums, those of windows too (kernels/pool): bias, requantization
// and a fused activation.
//
// Scales and zero points are pointers to one value, where the codes are. Code is int8_t or uint8_t;
// of ActivateCodes and DropCodes int32_t too (kernels/wide_codes).
#pragma once

#include <tuple>

#include "steelyard/kernels/quantizer_state/formulas.h"
#include "steelyard/kernels/requantize/formulas.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// Accumulators of an integer product. Bias codes [channels] of the kernels below may be null;
// product_scale [channels] = float(s_x * s_w).
struct Requantize {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  Activation activation = Activation::kNone;
};

// acc[r, c] -= zero_point[c] * sums[r, group of c], for weights with zero points: sums of the
// inputs that each group of channels multiplies. There are `columns` zero points or one.
struct SubtractZeroPoints {
  std::int64_t rows, columns, groups, zero_points;
  const std::int32_t *sums, *zero_point;
  std::int32_t* acc;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t row, std::int64_t column) const {
    const std::int64_t group = groups == 1 ? 0 : column / (columns / groups);
    acc[row * columns + column] -=
        zero_point[zero_points == 1 ? 0 : column] * sums[row * groups + group];
  }
};

// out[r, c] = activation(float(acc + bias) * product_scale): what observers see.
struct DequantizeAccumulators {
  std::int64_t rows, channels;
  Activation activation;
  const std::int32_t *acc, *bias;
  const float* product_scale;
  float* out;

  static constexpr auto per_channel() {
    return std::tuple{&DequantizeAccumulators::bias, &DequantizeAccumulators::product_scale};
  }
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i, std::int64_t c) const {
    const LinearPart linear = linear_part(activation);
    out[i] = linear.clamp(dequantize_sum(with_bias(acc[i], bias, c), product_scale[c]));
  }
};

// ObserveValues of what DequantizeAccumulators would write. Where one of the extremes is not finite
// there is nothing to observe, as in no elements, and the count grows by 1.
struct ObserveAccumulators {
  RangeRule rule;
  RangeQuantizer to;
  Requantize op;
  const std::int32_t *acc, *bias;
  const float* product_scale;
};

// codes = clamp(rint(float(acc + bias) * (product_scale / scale)) + zero_point), clamped further by
// the activation. mask bit (may be null) = inside the code range and on the activation's linear
// part (relu: acc + bias > 0; relu6: also the real value < 6).
template <typename Code>
struct RequantizeAccumulators {
  Requantize op;
  const std::int32_t *acc, *bias;
  const float *product_scale, *scale;
  const std::int32_t* zero_point;
  CodeRange range;
  Code* codes;
  std::uint8_t* mask;
};

// The quantized residual sum: codes = clamp(requantized_add_code(a, b)), the activation as above
// (its sign is decided on the real sum s_a*(a-z_a) + s_b*(b-z_b)).
template <typename CodeA, typename CodeB, typename CodeY>
struct RequantizeAdd {
  std::int64_t n;
  Activation activation;
  CodesOf<CodeA> a;
  CodesOf<CodeB> b;
  const float* scale;
  const std::int32_t* zero_point;
  CodeRange range;
  CodeY* codes;
  std::uint8_t* mask;
};

// The real sum with the activation: what observers see.
template <typename CodeA, typename CodeB>
struct DequantizeAdd {
  std::int64_t n;
  Activation activation;
  CodesOf<CodeA> a;
  CodesOf<CodeB> b;
  float* out;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const float sum = real_sum(static_cast<float>(a.codes[i]), a.grid(),
                               static_cast<float>(b.codes[i]), b.grid());
    out[i] = linear_part(activation).clamp(sum);
  }
};

// codes of activation(x) on the grid of x; mask bit (may be null) = on the activation's linear
// part. codes may alias x.
template <typename Code>
struct ActivateCodes {
  std::int64_t n;
  Activation activation;
  const Code* x;
  const float* scale;
  const std::int32_t* zero_point;
  CodeRange range;
  Code* codes;
  std::uint8_t* mask;
};

// codes = x where the packed mask has a one, else zero_point. codes may alias x.
template <typename Code>
struct DropCodes {
  std::int64_t n;
  const std::uint8_t* mask;
  const Code* x;
  const std::int32_t* zero_point;
  Code* codes;
};

// codes of n sums of codes of in_scale: clamp(rint(float(sum) * multiplier) + zero_point); mask
// (may be null) = packed bits of the unclamped code inside the range.
template <typename Code>
struct RequantizeAverage {
  std::int64_t n;
  Average average;
  const std::int32_t* sums;
  const float *in_scale, *scale;
  const std::int32_t* zero_point;
  CodeRange range;
  Code* codes;
  std::uint8_t* mask;
};

// out = float(sum) * (in_scale / count): what observers see.
struct DequantizeAverage {
  std::int64_t n, count;
  const std::int32_t* sums;
  const float* in_scale;
  float* out;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    out[i] = dequantize_sum(sums[i], global_average_multiplier(*in_scale, count, 1.0F));
  }
};

template <typename Code>
using KernelsOfCode = KernelList<RequantizeAccumulators<Code>, RequantizeAverage<Code>,
                                 ActivateCodes<Code>, DropCodes<Code>>;
template <typename CodeA, typename CodeB>
using KernelsOfSum =
    KernelList<DequantizeAdd<CodeA, CodeB>, RequantizeAdd<CodeA, CodeB, std::int8_t>,
               RequantizeAdd<CodeA, CodeB, std::uint8_t>>;
using RequantizeKernels = JoinedKernels<
    KernelList<ActivateCodes<std::int32_t>, DropCodes<std::int32_t>>,
    KernelList<SubtractZeroPoints, DequantizeAccumulators, DequantizeAverage, ObserveAccumulators>,
    KernelsOfCode<std::int8_t>, KernelsOfCode<std::uint8_t>, KernelsOfSum<std::int8_t, std::int8_t>,
    KernelsOfSum<std::int8_t, std::uint8_t>, KernelsOfSum<std::uint8_t, std::int8_t>,
    KernelsOfSum<std::uint8_t, std::uint8_t>>;

}  // namespace steelyard::kernels
