// The formulas of requantization for one element, host and device: activations on codes and the
// bit that a straight-through gradient needs.
#pragma once

#include <cmath>
#include <type_traits>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/code_type.h"

namespace steelyard::kernels {

// The open interval on which an activation is the identity; it clamps to its ends.
struct LinearPart {
  float lower;
  float upper;

  STEELYARD_HOST_DEVICE float clamp(float value) const {
    return clamp_keeping_nan(value, lower, upper);
  }
  STEELYARD_HOST_DEVICE bool contains(float value) const {
    return (value > lower) & (value < upper);
  }
};

STEELYARD_HOST_DEVICE inline LinearPart linear_part(Activation activation) {
  const bool any = activation != Activation::kNone;
  return {any ? 0.0F : -INFINITY, activation == Activation::kRelu6 ? 6.0F : INFINITY};
}

// An accumulator of channel c with its bias; there may be none.
STEELYARD_HOST_DEVICE inline std::int32_t with_bias(std::int32_t acc, const std::int32_t* bias,
                                                    std::int64_t c) {
  return bias == nullptr ? acc : acc + bias[c];
}

// The output's quantization: its own range decides the mask, the narrower range of the activation's
// values (relu: from the code of 0) clamps the codes.
struct OutputCodes {
  CodeGrid<float> full;
  CodeGrid<float> clamped;
  LinearPart linear;

  STEELYARD_HOST_DEVICE std::int32_t code(float unclamped) const {
    return to_integer_code(unclamped, clamped);
  }
  STEELYARD_HOST_DEVICE bool passes(float unclamped, float real) const {
    const bool inside = code_is_inside(unclamped, full);
    const bool passed = linear.contains(real);
    return inside & passed;  // both, without a branch
  }
};

STEELYARD_HOST_DEVICE inline OutputCodes output_codes(Activation activation, float scale,
                                                      std::int32_t zero_point, CodeRange range) {
  const CodeRange narrowed = activation_code_range(activation, range, scale, zero_point);
  return {make_code_grid(range, scale, zero_point), make_code_grid(narrowed, scale, zero_point),
          linear_part(activation)};
}

// Extremes of real values; NaN is passed over. +inf and -inf before the first.
struct RealExtremes {
  float lo = INFINITY;
  float hi = -INFINITY;
  std::int64_t skipped = 0;

  STEELYARD_HOST_DEVICE void take(float value) { join({value, value, 0}); }
  STEELYARD_HOST_DEVICE void join(const RealExtremes& other) {
    lo = other.lo < lo ? other.lo : lo;
    hi = other.hi > hi ? other.hi : hi;
  }
  // What an observer takes of n values: nothing where an extreme is not finite; such a step is
  // counted.
  STEELYARD_HOST_DEVICE RealExtremes observed(std::int64_t n) const {
    if (lo - lo == 0.0F && hi - hi == 0.0F) return *this;
    return {INFINITY, -INFINITY, n > 0 ? 1 : 0};
  }
};

// A tensor's grid with every code of its type.
template <typename Code>
STEELYARD_HOST_DEVICE inline CodeGrid<float> whole_grid(float scale, std::int32_t zero_point) {
  constexpr CodeType kType = std::is_signed_v<Code> ? CodeType::kS8 : CodeType::kU8;
  return make_code_grid(whole_range(kType), scale, zero_point);
}

// Codes with the one scale and zero point of their tensor, where the codes are.
template <typename Code>
struct CodesOf {
  const Code* codes;
  const float* scale;
  const std::int32_t* zero_point;

  STEELYARD_HOST_DEVICE CodeGrid<float> grid() const {
    return whole_grid<Code>(*scale, *zero_point);
  }
};

STEELYARD_HOST_DEVICE inline float real_sum(float a, const CodeGrid<float>& of_a, float b,
                                            const CodeGrid<float>& of_b) {
  return dequantize_code(a, of_a.zero_point, of_a.scale) +
         dequantize_code(b, of_b.zero_point, of_b.scale);
}

// The product of two quantized tensors, as ONNX Runtime's QLinearMul computes it: on u8 (it turns
// s8 into u8), with the zero point added in float before rounding.
struct MulRequantizer {
  float ratio;       // s_a * s_b / s_y
  float zero_point;  // of the unsigned byte
  CodeGrid<float> bytes;
};

STEELYARD_HOST_DEVICE inline MulRequantizer make_mul_requantizer(float scale_a, float scale_b,
                                                                 float scale,
                                                                 std::int32_t zero_point,
                                                                 CodeRange range, bool is_signed) {
  const std::int32_t shift = is_signed ? 128 : 0;
  return {scale_a * scale_b / scale, static_cast<float>(zero_point + shift),
          make_code_grid(range, 1.0F, -shift)};
}

// The code of a product of two codes less their zero points.
STEELYARD_HOST_DEVICE inline std::int32_t requantized_mul_code(std::int32_t product,
                                                               const MulRequantizer& mul) {
  return quantize_value(static_cast<float>(product) * mul.ratio + mul.zero_point, mul.bytes);
}

// Whether a code of a tensor is one of an activation's linear part, `left` being the codes that the
// activation leaves.
STEELYARD_HOST_DEVICE inline bool code_is_linear(std::int32_t code, Activation activation,
                                                 CodeRange left) {
  return (activation == Activation::kNone) |
         ((code > left.qmin) & ((activation != Activation::kRelu6) | (code < left.qmax)));
}

// An average of `count` codes: of all pixels, or of a window (affine.h: their multipliers differ).
struct Average {
  enum class Kind { kGlobal, kWindow };
  Kind kind = Kind::kGlobal;
  std::int64_t count = 1;
};

STEELYARD_HOST_DEVICE inline float average_multiplier(const Average& average, float in_scale,
                                                      float scale) {
  return average.kind == Average::Kind::kGlobal
             ? global_average_multiplier(in_scale, average.count, scale)
             : window_average_multiplier(in_scale, average.count, scale);
}

}  // namespace steelyard::kernels
