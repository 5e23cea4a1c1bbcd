// Exact integer products of quantized codes, and requantization.
//
// Activation codes are uint8_t or int8_t with one zero point; weight codes are int8_t with zero
// point 0. Accumulators are int32 and exact whatever the backend (NUMERICS: oneDNN int8 only with
// VNNI, s32 output, no scales, bias or zero points inside).
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/conv.h"
#include "kernels/fake_quantize.h"

namespace steelyard::kernels {

// acc[m, n] = sum_k (x[m, k] - x_zero_point) * w[n, k]. Throws std::invalid_argument when
// 255 * 128 * k could overflow int32.
template <typename Code>
void integer_matmul(Backend backend, std::int64_t m, std::int64_t n, std::int64_t k, const Code* x,
                    std::int32_t x_zero_point, const std::int8_t* w, std::int32_t* acc);

// acc[N, OH, OW, O] of x[N, H, W, C] and w[O, C/groups, KH, KW]; padding counts as real zero.
template <typename Code>
void integer_conv2d(Backend backend, const Conv2dShape& shape, const Code* x,
                    std::int32_t x_zero_point, const std::int8_t* w, std::int32_t* acc);

// What follows an integer product: bias, requantization and a fused activation (NUMERICS).
struct Requantize {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  const std::int32_t* bias = nullptr;    // [channels], null: none
  const float* product_scale = nullptr;  // [channels] = float(s_x * s_w)
  Activation activation = Activation::kNone;
};

// out[r, c] = activation(float(acc + bias) * product_scale): what observers see.
void dequantize_accumulators(const Requantize& op, const std::int32_t* acc, float* out);

// Extremes over all elements of what dequantize_accumulators would write.
void accumulator_min_max(const Requantize& op, const std::int32_t* acc, float* lo, float* hi);

// codes = clamp(rint(float(acc + bias) * (product_scale / scale)) + zero_point), clamped further by
// the activation. mask bit (may be null) = inside the code range and on the activation's linear
// part (relu: acc + bias > 0; relu6: also the real value < 6).
template <typename Code>
void requantize(const Requantize& op, const std::int32_t* acc, float scale, std::int32_t zero_point,
                CodeRange range, Code* codes, std::uint8_t* mask);

// The quantized residual sum. Operand codes share the type Code; r = s_operand / s_out.
struct QuantizedOperand {
  float scale = 1;
  std::int32_t zero_point = 0;
};
// codes = clamp(requantized_add_code(a, b)), the activation as above (its sign is decided on the
// real sum s_a*(a-z_a) + s_b*(b-z_b)).
template <typename CodeA, typename CodeB, typename CodeY>
void requantize_add(std::int64_t n, Activation activation, const CodeA* a,
                    QuantizedOperand a_params, const CodeB* b, QuantizedOperand b_params,
                    float scale, std::int32_t zero_point, CodeRange range, CodeY* codes,
                    std::uint8_t* mask);

// The real sum with the activation: what observers see.
template <typename CodeA, typename CodeB>
void dequantize_add(std::int64_t n, Activation activation, const CodeA* a,
                    QuantizedOperand a_params, const CodeB* b, QuantizedOperand b_params,
                    float* out);

}  // namespace steelyard::kernels
