// The arithmetic of affine quantization, host and device. What else in kernels/ rounds to codes: a
// softmax of codes (softmax/softmax.h), faster ways to the same bits (multiples.h, and with AVX-512
// requantize/requantizer.h), oscillating weights that freeze at their mean code
// (oscillation/oscillation.h), and the choice of a zero point (qparams.h,
// quantizer_state/formulas.h).
//
// A real x has the code  q = clamp(rint(x / s) + z, qmin, qmax)  and a code stands for  (q - z) *
// s. Codes stay in floating point until they are clamped, because x / s may fit no integer and NaN
// must survive. Everything is branch-free, so that compilers vectorize it. T is float or double.
// Callers guarantee finite s > 0 and qmin <= z <= qmax, and compile without contraction of a*b + c.
#pragma once

#include <cmath>
#include <cstdint>

#include "steelyard/kernels/bits.h"
#include "steelyard/kernels/host_device.h"

namespace steelyard::kernels {

// Activations that integer operations compute on the codes of their output.
enum class Activation { kNone, kRelu, kRelu6 };

// The codes a quantizer may give, both ends included.
struct CodeRange {
  std::int32_t qmin = 0;
  std::int32_t qmax = 255;
  bool operator==(const CodeRange&) const = default;
};

// Scale, zero point and code range as values of T. The integers are exact: codes are small.
template <typename T>
struct CodeGrid {
  T scale;
  T zero_point;
  T qmin;
  T qmax;
};

template <typename T>
STEELYARD_HOST_DEVICE inline CodeGrid<T> make_code_grid(CodeRange range, T scale,
                                                        std::int32_t zero_point) {
  return {scale, static_cast<T>(zero_point), static_cast<T>(range.qmin),
          static_cast<T>(range.qmax)};
}

// The nearest integer, ties to even (the default rounding mode).
template <typename T>
STEELYARD_HOST_DEVICE inline T round_half_even(T value) {
  return std::rint(value);
}

// value within [lo, hi]; NaN stays NaN.
template <typename T>
STEELYARD_HOST_DEVICE inline T clamp_keeping_nan(T value, T lo, T hi) {
  const T raised = value < lo ? lo : value;
  return raised > hi ? hi : raised;
}

// rint(x / s) + z, in floating point and not clamped.
template <typename T>
STEELYARD_HOST_DEVICE inline T unclamped_code(T x, const CodeGrid<T>& p) {
  return round_half_even(x / p.scale) + p.zero_point;
}

template <typename T>
STEELYARD_HOST_DEVICE inline T clamp_code(T unclamped, const CodeGrid<T>& p) {
  return clamp_keeping_nan(unclamped, p.qmin, p.qmax);
}

// True where the straight-through gradient passes: an unclamped code within the range, or NaN.
template <typename T>
STEELYARD_HOST_DEVICE inline bool code_is_inside(T unclamped, const CodeGrid<T>& p) {
  return !(unclamped < p.qmin) & !(unclamped > p.qmax);
}

// code_is_inside() of a code that clamp_code() made `clamped`: true if it is left alone, or NaN.
// One comparison.
template <typename T>
STEELYARD_HOST_DEVICE inline bool is_unchanged(T unclamped, T clamped) {
  return bits_as<BitsOf<T>>(unclamped) == bits_as<BitsOf<T>>(clamped);
}

template <typename T>
STEELYARD_HOST_DEVICE inline bool is_inside(T x, const CodeGrid<T>& p) {
  return code_is_inside(unclamped_code(x, p), p);
}

// The real value of a code held in floating point, rounded once. Never -0: code - z is an exact
// difference of integers and so +0 when they are equal, and the product cannot underflow. (Narrowed
// to half it can, where the scale is below half's smallest denormal 2^-24.)
template <typename T>
STEELYARD_HOST_DEVICE inline T dequantize_code(T code, T zero_point, T scale) {
  return (code - zero_point) * scale;
}

template <typename T>
STEELYARD_HOST_DEVICE inline T fake_quantize_value(T x, const CodeGrid<T>& p) {
  return dequantize_code(clamp_code(unclamped_code(x, p), p), p.zero_point, p.scale);
}

// The integer of an unclamped code. NaN has the code z.
template <typename T>
STEELYARD_HOST_DEVICE inline std::int32_t to_integer_code(T unclamped, const CodeGrid<T>& p) {
  const T code = clamp_code(unclamped, p);
  return static_cast<std::int32_t>(code == code ? code : p.zero_point);
}

template <typename T>
STEELYARD_HOST_DEVICE inline std::int32_t quantize_value(T x, const CodeGrid<T>& p) {
  return to_integer_code(unclamped_code(x, p), p);
}

// The codes that an activation leaves of a range: relu from the code of 0, relu6 up to that of 6.
STEELYARD_HOST_DEVICE inline CodeRange activation_code_range(Activation activation, CodeRange range,
                                                             float scale, std::int32_t zero_point) {
  const CodeGrid<float> grid = make_code_grid(range, scale, zero_point);
  CodeRange left = range;
  if (activation != Activation::kNone) left.qmin = quantize_value(0.0F, grid);
  if (activation == Activation::kRelu6) left.qmax = quantize_value(6.0F, grid);
  return left;
}

// All bits where `inside`, else none; and what they leave of a value.
template <typename T>
STEELYARD_HOST_DEVICE inline BitsOf<T> kept_bits(bool inside) {
  return BitsOf<T>{0} - BitsOf<T>{inside};
}
template <typename T>
STEELYARD_HOST_DEVICE inline T keep(T value, BitsOf<T> kept) {
  return bits_as<T>(bits_as<BitsOf<T>>(value) & kept);
}

// Gradients: of fake-quantize and quantize with respect to x, of dequantize with respect to the
// code.
template <typename T>
STEELYARD_HOST_DEVICE inline T pass_inside(bool inside, T grad_y) {
#ifdef __CUDA_ARCH__
  return inside ? grad_y : T(0);
#else
  // GCC makes a masked load of a choice, which waits for its mask: half as fast on Zen 5.
  return keep(grad_y, kept_bits<T>(inside));
#endif
}
template <typename T>
STEELYARD_HOST_DEVICE inline T quantize_gradient(bool inside, T grad_code, T scale) {
  return inside ? grad_code / scale : T(0);
}
template <typename T>
STEELYARD_HOST_DEVICE inline T dequantize_gradient(T grad_y, T scale) {
  return grad_y * scale;
}

// The gradient of an element x whose fake-quantize learns its scale and zero point, and the
// element's part of theirs, before the factor g (Esser et al., arXiv:1902.08153; Bhalgat et al.,
// arXiv:2004.09576).
template <typename T>
struct LearnedGradients {
  T x;
  T scale;
  T zero_point;
};
// Always inlined: a loop that calls it would not be vectorized.
template <typename T>
[[gnu::always_inline]] STEELYARD_HOST_DEVICE inline LearnedGradients<T> learned_gradients(
    T x, T grad_y, const CodeGrid<T>& p) {
  const T t = x / p.scale;
  const T rounded = round_half_even(t);
  const T unclamped = rounded + p.zero_point;
  const bool is_inside = code_is_inside(unclamped, p);
  const T inside = rounded - t;
  const T outside = clamp_code(unclamped, p) - p.zero_point;
  return {pass_inside(is_inside, grad_y), grad_y * (is_inside ? inside : outside),
          is_inside ? T(0) : -p.scale * grad_y};
}

// A bias as int32 code of the scale float(s_x * s_w), zero point 0: rint(b / scale), saturated. NaN
// has the code 0.
template <typename T>
STEELYARD_HOST_DEVICE inline std::int32_t quantize_bias(T bias, T scale) {
  const T code = round_half_even(bias / scale);
  constexpr T kTwoTo31 = static_cast<T>(2147483648.0);  // INT32_MAX is no float
  if (code >= kTwoTo31) return INT32_MAX;
  if (code <= -kTwoTo31) return INT32_MIN;
  return code == code ? static_cast<std::int32_t>(code) : 0;
}

// The real value of an integer sum of products whose operands' scales multiply to product_scale.
STEELYARD_HOST_DEVICE inline float dequantize_sum(std::int32_t sum, float product_scale) {
  return static_cast<float>(sum) * product_scale;
}

// M of a requantization: product_scale = float(s_x * s_w), scale = s_y.
STEELYARD_HOST_DEVICE inline float requantize_multiplier(float product_scale, float scale) {
  return product_scale / scale;
}

// M of a global average of `count` values: s_x / (count * s_y), as in ONNX Runtime's
// QLinearGlobalAveragePool.
STEELYARD_HOST_DEVICE inline float global_average_multiplier(float in_scale, std::int64_t count,
                                                             float scale) {
  return requantize_multiplier(in_scale, static_cast<float>(count) * scale);
}

// The weight of one of the `count` values of a window average. An average pool is a depthwise
// convolution whose weights have the code 1 and this scale: sums stay exact integers, which those
// of ONNX Runtime's QLinearAveragePool are not (docs/numerics.md).
STEELYARD_HOST_DEVICE inline float average_weight_scale(std::int64_t count) {
  return 1.0F / static_cast<float>(count);
}

// M of a window average.
STEELYARD_HOST_DEVICE inline float window_average_multiplier(float in_scale, std::int64_t count,
                                                             float scale) {
  return requantize_multiplier(in_scale * average_weight_scale(count), scale);
}

// rint(float(sum) * M) + z_y, not clamped. sum is the accumulator with its bias.
STEELYARD_HOST_DEVICE inline float requantized_code(std::int32_t sum, float multiplier,
                                                    float zero_point) {
  return round_half_even(dequantize_sum(sum, multiplier)) + zero_point;
}

// The sum of two quantized tensors, as ONNX Runtime's QLinearAdd computes it on x86: with fused
// multiply-adds and on u8 (it turns s8 into u8). Without them a few codes in a million differ.
struct AddRequantizer {
  float ratio_a;  // s_a / s_y
  float ratio_b;
  float base;  // z_y - fma(ratio_a, z_a, ratio_b * z_b), zero points counted from the lowest code
  float lowest_a;
  float lowest_b;
  float lowest;
};

// The grids have every code of their type: codes are counted from the lowest (s8: -128).
STEELYARD_HOST_DEVICE inline AddRequantizer make_add_requantizer(const CodeGrid<float>& a,
                                                                 const CodeGrid<float>& b,
                                                                 const CodeGrid<float>& y) {
  const float ratio_a = a.scale / y.scale;
  const float ratio_b = b.scale / y.scale;
  const float offset = std::fma(ratio_a, a.zero_point - a.qmin, ratio_b * (b.zero_point - b.qmin));
  return {ratio_a, ratio_b, (y.zero_point - y.qmin) - offset, a.qmin, b.qmin, y.qmin};
}

// rint(fma(a, ratio_a, fma(b, ratio_b, base))), codes counted from the lowest; not clamped.
STEELYARD_HOST_DEVICE inline float requantized_add_code(float a, float b,
                                                        const AddRequantizer& add) {
  const float of_b = std::fma(b - add.lowest_b, add.ratio_b, add.base);
  return round_half_even(std::fma(a - add.lowest_a, add.ratio_a, of_b)) + add.lowest;
}

}  // namespace steelyard::kernels
