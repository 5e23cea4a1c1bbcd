// Exact integer products of quantized codes, and requantization.
//
// Activation codes are uint8_t or int8_t with one zero point; weight codes are int8_t with zero
// point 0. Accumulators are int32 and exact whatever the backend and device (NUMERICS: oneDNN int8
// only with VNNI, s32 output, no scales, bias or zero points inside). Scales and zero points are
// pointers to one value, where the codes are.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/conv.h"
#include "kernels/cuda_queue.h"
#include "kernels/fake_quantize.h"
#include "kernels/quantizer_state/quantizer_state.h"

namespace steelyard::kernels {

// The largest |(x - zero_point) * w| of codes and zero points within these ranges.
constexpr std::int64_t largest_product(CodeRange x, CodeRange w) {
  return std::int64_t{x.qmax - x.qmin} * (-w.qmin > w.qmax ? -w.qmin : w.qmax);
}
// That of any codes of 8 bits.
inline constexpr std::int64_t kLargestProduct = largest_product({0, 255}, {-128, 127});

// acc[m, n] = sum_k (x[m, k] - x_zero_point) * w[n, k]. No product is larger than `largest`: small
// ones let more of them be added at a time. Throws std::invalid_argument when k of the largest
// could overflow int32.
template <typename Code>
void integer_matmul(Backend backend, std::int64_t m, std::int64_t n, std::int64_t k, const Code* x,
                    const std::int32_t* x_zero_point, const std::int8_t* w, std::int32_t* acc,
                    std::int64_t largest = kLargestProduct);

// acc[N, OH, OW, O] of x[N, H, W, C] and w[O, C/groups, KH, KW]; padding counts as real zero.
template <typename Code>
void integer_conv2d(Backend backend, const Conv2dShape& shape, const Code* x,
                    const std::int32_t* x_zero_point, const std::int8_t* w, std::int32_t* acc,
                    std::int64_t largest = kLargestProduct);

// The same with default_backend().
template <typename Code>
void integer_matmul(std::int64_t m, std::int64_t n, std::int64_t k, const Code* x,
                    const std::int32_t* x_zero_point, const std::int8_t* w, std::int32_t* acc,
                    std::int64_t largest = kLargestProduct);
template <typename Code>
void integer_conv2d(const Conv2dShape& shape, const Code* x, const std::int32_t* x_zero_point,
                    const std::int8_t* w, std::int32_t* acc,
                    std::int64_t largest = kLargestProduct);

// What follows an integer product: bias, requantization and a fused activation (NUMERICS). Bias
// codes [channels] may be null; product_scale [channels] = float(s_x * s_w).
struct Requantize {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  Activation activation = Activation::kNone;
};

// out[r, c] = activation(float(acc + bias) * product_scale): what observers see.
void dequantize_accumulators(const Requantize& op, const std::int32_t* acc,
                             const std::int32_t* bias, const float* product_scale, float* out);

// observe_values() of what dequantize_accumulators would write. Where one of the extremes is not
// finite there is nothing to learn, as from no elements, and the count grows by 1.
void observe_accumulators(const RangeRule& rule, const RangeQuantizer& to, const Requantize& op,
                          const std::int32_t* acc, const std::int32_t* bias,
                          const float* product_scale);

// codes = clamp(rint(float(acc + bias) * (product_scale / scale)) + zero_point), clamped further by
// the activation. mask bit (may be null) = inside the code range and on the activation's linear
// part (relu: acc + bias > 0; relu6: also the real value < 6).
template <typename Code>
void requantize(const Requantize& op, const std::int32_t* acc, const std::int32_t* bias,
                const float* product_scale, const float* scale, const std::int32_t* zero_point,
                CodeRange range, Code* codes, std::uint8_t* mask);

// An operand's one scale and zero point.
struct QuantizedOperand {
  const float* scale;
  const std::int32_t* zero_point;
};
// The quantized residual sum: codes = clamp(requantized_add_code(a, b)), the activation as above
// (its sign is decided on the real sum s_a*(a-z_a) + s_b*(b-z_b)).
template <typename CodeA, typename CodeB, typename CodeY>
void requantize_add(std::int64_t n, Activation activation, const CodeA* a, QuantizedOperand of_a,
                    const CodeB* b, QuantizedOperand of_b, const float* scale,
                    const std::int32_t* zero_point, CodeRange range, CodeY* codes,
                    std::uint8_t* mask);

// The real sum with the activation: what observers see.
template <typename CodeA, typename CodeB>
void dequantize_add(std::int64_t n, Activation activation, const CodeA* a, QuantizedOperand of_a,
                    const CodeB* b, QuantizedOperand of_b, float* out);

// codes of activation(x) on the grid of x; mask bit (may be null) = on the activation's linear
// part. codes may alias x.
template <typename Code>
void activate_codes(std::int64_t n, Activation activation, const Code* x, const float* scale,
                    const std::int32_t* zero_point, CodeRange range, Code* codes,
                    std::uint8_t* mask);

// codes = x where the packed mask has a one, else zero_point. codes may alias x.
template <typename Code>
void drop_codes(std::int64_t n, const std::uint8_t* mask, const Code* x,
                const std::int32_t* zero_point, Code* codes);

// The same on a GPU.
template <typename Code>
void integer_matmul(const CudaQueue& queue, std::int64_t m, std::int64_t n, std::int64_t k,
                    const Code* x, const std::int32_t* x_zero_point, const std::int8_t* w,
                    std::int32_t* acc, std::int64_t largest = kLargestProduct);
template <typename Code>
void integer_conv2d(const CudaQueue& queue, const Conv2dShape& shape, const Code* x,
                    const std::int32_t* x_zero_point, const std::int8_t* w, std::int32_t* acc,
                    std::int64_t largest = kLargestProduct);
void dequantize_accumulators(const CudaQueue& queue, const Requantize& op, const std::int32_t* acc,
                             const std::int32_t* bias, const float* product_scale, float* out);
void observe_accumulators(const CudaQueue& queue, const RangeRule& rule, const RangeQuantizer& to,
                          const Requantize& op, const std::int32_t* acc, const std::int32_t* bias,
                          const float* product_scale);
template <typename Code>
void requantize(const CudaQueue& queue, const Requantize& op, const std::int32_t* acc,
                const std::int32_t* bias, const float* product_scale, const float* scale,
                const std::int32_t* zero_point, CodeRange range, Code* codes, std::uint8_t* mask);
template <typename CodeA, typename CodeB, typename CodeY>
void requantize_add(const CudaQueue& queue, std::int64_t n, Activation activation, const CodeA* a,
                    QuantizedOperand of_a, const CodeB* b, QuantizedOperand of_b,
                    const float* scale, const std::int32_t* zero_point, CodeRange range,
                    CodeY* codes, std::uint8_t* mask);
template <typename CodeA, typename CodeB>
void dequantize_add(const CudaQueue& queue, std::int64_t n, Activation activation, const CodeA* a,
                    QuantizedOperand of_a, const CodeB* b, QuantizedOperand of_b, float* out);
template <typename Code>
void activate_codes(const CudaQueue& queue, std::int64_t n, Activation activation, const Code* x,
                    const float* scale, const std::int32_t* zero_point, CodeRange range,
                    Code* codes, std::uint8_t* mask);
template <typename Code>
void drop_codes(const CudaQueue& queue, std::int64_t n, const std::uint8_t* mask, const Code* x,
                const std::int32_t* zero_point, Code* codes);

}  // namespace steelyard::kernels
