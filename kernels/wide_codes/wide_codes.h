// Codes of 9 to 16 bits, held as int32: what they are made of, and their products as two products
// of bytes.
//
// A code is high * 256 + low above the lowest of its type, and so is its zero point. The sum of
// products is 256 times that of the high bytes and that of the low ones, each exact in int32
// (kernels/integer_product) as sums of codes of 8 bits are; together they are exact in int64.
// Scales and zero points are pointers to one value, where the codes are. What such codes are
// rounded from is a real value, the same that ONNX's QuantizeLinear would be given
// (docs/numerics.md).
#pragma once

#include "steelyard/kernels/code_type.h"
#include "steelyard/kernels/mask_byte.h"
#include "steelyard/kernels/requantize/formulas.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// codes = quantize(activation(x)) of `size` values; mask bit (may be null) = inside the code range
// and on the activation's linear part, tail bits 0. n = mask_bytes(size): eight values each. Code
// is int8_t, uint8_t or int32_t.
template <typename Code>
struct QuantizeReals {
  static constexpr std::int64_t kGrain = 512;
  std::int64_t n, size;
  Activation activation;
  CodeRange range;
  const float *x, *scale;
  const std::int32_t* zero_point;
  Code* codes;
  std::uint8_t* mask;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t byte) const {
    const OutputCodes out = output_codes(activation, *scale, *zero_point, range);
    write_mask_byte(byte, size, mask, [&](std::int64_t i) {
      const float code = unclamped_code(x[i], out.full);
      codes[i] = static_cast<Code>(out.code(code));
      const bool linear = (activation == Activation::kNone) | out.linear.contains(x[i]);
      return code_is_inside(code, out.full) & linear;
    });
  }
};

// *count grows by the NaN among n values.
struct CountNan {
  std::int64_t n;
  const float* x;
  std::int64_t* count;

  STEELYARD_HOST_DEVICE float term(std::int64_t i) const { return x[i] != x[i] ? 1.0F : 0.0F; }
  STEELYARD_HOST_DEVICE void finish(double sum) const { *count += static_cast<std::int64_t>(sum); }
};

// y = (code - z) * s.
struct DequantizeWide {
  std::int64_t n;
  const std::int32_t* codes;
  const float* scale;
  const std::int32_t* zero_point;
  float* y;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    y[i] = dequantize_code(static_cast<float>(codes[i]), static_cast<float>(*zero_point), *scale);
  }
};

// high * 256 + low = code - lowest. Of codes into bytes, and of a zero point (n = 1) into int32.
template <typename Byte>
struct SplitCodes {
  std::int64_t n;
  std::int32_t lowest;
  const std::int32_t* codes;
  Byte *high, *low;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int32_t code = codes[i] - lowest;
    high[i] = static_cast<Byte>(code >> 8);
    low[i] = static_cast<Byte>(code & 255);
  }
};

// out[r, c] = float(256 * high + low + bias) * product_scale: the integer is exact, and rounded to
// float once. bias [columns] may be null.
struct DequantizeWideSums {
  std::int64_t rows, columns;
  const std::int32_t *high, *low, *bias;
  const float* product_scale;
  float* out;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t row, std::int64_t c) const {
    const std::int64_t i = row * columns + c;
    // Below 2^40: a double holds it.
    const double sum = 256.0 * high[i] + low[i] + (bias == nullptr ? 0 : bias[c]);
    out[i] = static_cast<float>(sum) * product_scale[c];
  }
};

// grad_x = inside(x) ? grad_y : 0, for values with one scale.
struct PassInside {
  std::int64_t n;
  CodeRange range;
  const float *x, *scale;
  const std::int32_t* zero_point;
  const float* grad_y;
  float* grad_x;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    grad_x[i] = pass_inside(is_inside(x[i], make_code_grid(range, *scale, *zero_point)), grad_y[i]);
  }
};

// The parts of affine.h's LearnedGradients.
struct ScaleTerm {
  STEELYARD_HOST_DEVICE static float of(float x, float grad_y, const CodeGrid<float>& grid) {
    return learned_gradients(x, grad_y, grid).scale;
  }
};
struct ZeroPointTerm {
  STEELYARD_HOST_DEVICE static float of(float x, float grad_y, const CodeGrid<float>& grid) {
    return learned_gradients(x, grad_y, grid).zero_point;
  }
};

// The gradient of a learned scale or of its zero point, times the factor.
template <class Term>
struct GradientSum {
  std::int64_t n;
  CodeRange range;
  double factor;
  const float *x, *scale;
  const std::int32_t* zero_point;
  const float* grad_y;
  float* gradient;

  STEELYARD_HOST_DEVICE float term(std::int64_t i) const {
    return Term::of(x[i], grad_y[i], make_code_grid(range, *scale, *zero_point));
  }
  STEELYARD_HOST_DEVICE void finish(double sum) const {
    *gradient = static_cast<float>(factor * sum);
  }
};
using ScaleGradientSum = GradientSum<ScaleTerm>;
using ZeroPointGradientSum = GradientSum<ZeroPointTerm>;

using WideCodesKernels =
    JoinedKernels<ForTypes<QuantizeReals, std::int8_t, std::uint8_t, std::int32_t>,
                  ForTypes<SplitCodes, std::uint8_t, std::int32_t>,
                  KernelList<CountNan, DequantizeWide, DequantizeWideSums, PassInside,
                             ScaleGradientSum, ZeroPointGradientSum>>;

}  // namespace steelyard::kernels
