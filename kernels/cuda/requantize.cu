// What follows integer products and sums, eight elements to a thread: a byte of mask.
#include "kernels/requantization.h"

#include "kernels/cuda/eight.h"
#include "kernels/cuda/range_update.h"

namespace steelyard::kernels {
namespace {

using cuda::kEight;
using cuda::kThreads;
using cuda::launch_elements;
using cuda::load_span;
using cuda::Span;
using cuda::span_of;
using cuda::store_span;

// A thread's place in rows of channels, from element to element.
struct Column {
  std::int64_t channels;
  std::int64_t at;

  __device__ Column(std::int64_t channels_of_row, std::int64_t element)
      : channels(channels_of_row),
        at(element - cuda::divide(element, channels_of_row) * channels_of_row) {}
  __device__ void advance() { at = at + 1 == channels ? 0 : at + 1; }
};

__device__ std::int32_t with_bias(std::int32_t acc, const std::int32_t* bias, std::int64_t c) {
  return bias == nullptr ? acc : acc + bias[c];
}

__device__ void store_mask(unsigned bits, const Span& span, std::uint8_t* mask) {
  if (mask != nullptr) mask[span.first / kEight] = static_cast<std::uint8_t>(bits);
}

__global__ void __launch_bounds__(kThreads)
    dequantize_accumulators_kernel(std::int64_t n, std::int64_t channels, Activation activation,
                                   const std::int32_t* acc, const std::int32_t* bias,
                                   const float* product_scale, float* out) {
  const std::int64_t i = cuda::element_index();
  if (i >= n) return;
  const Column column(channels, i);
  out[i] = linear_part(activation)
               .clamp(dequantize_sum(with_bias(acc[i], bias, column.at), product_scale[column.at]));
}

template <typename Code>
__global__ void __launch_bounds__(kThreads)
    requantize_kernel(std::int64_t n, std::int64_t channels, Activation activation,
                      const std::int32_t* acc, const std::int32_t* bias, const float* product_scale,
                      const float* scale, const std::int32_t* zero_point, CodeRange range,
                      Code* codes, std::uint8_t* mask) {
  const Span span = span_of(blockIdx.x, n);
  if (span.count == 0) return;
  const float s = *scale;
  const OutputCodes out = output_codes(activation, s, *zero_point, range);
  Column column(channels, span.first);
  alignas(16) std::int32_t sums[kEight];
  alignas(16) Code y[kEight];
  load_span(acc + span.first, span.count, sums);
  unsigned passes = 0;
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    if (i >= span.count) break;
    const std::int32_t sum = with_bias(sums[i], bias, column.at);
    const float real_scale = product_scale[column.at];
    const float code =
        requantized_code(sum, requantize_multiplier(real_scale, s), out.full.zero_point);
    y[i] = static_cast<Code>(out.code(code));
    passes |= (out.passes(code, dequantize_sum(sum, real_scale)) ? 1U : 0U) << i;
    column.advance();
  }
  store_span(y, span.count, codes + span.first);
  store_mask(passes, span, mask);
}

template <typename CodeA, typename CodeB, typename CodeY>
__global__ void __launch_bounds__(kThreads)
    requantize_add_kernel(std::int64_t n, Activation activation, const CodeA* a,
                          const float* scale_a, const std::int32_t* zero_a, const CodeB* b,
                          const float* scale_b, const std::int32_t* zero_b, const float* scale,
                          const std::int32_t* zero_point, CodeRange range, CodeY* codes,
                          std::uint8_t* mask) {
  const Span span = span_of(blockIdx.x, n);
  if (span.count == 0) return;
  const AddOperand left = add_operand({scale_a, zero_a});
  const AddOperand right = add_operand({scale_b, zero_b});
  const OutputCodes out = output_codes(activation, *scale, *zero_point, range);
  const AddRequantizer add = add_requantizer<CodeA, CodeB, CodeY>(left, right, out.full);
  alignas(16) CodeA of_a[kEight];
  alignas(16) CodeB of_b[kEight];
  alignas(16) CodeY y[kEight];
  load_span(a + span.first, span.count, of_a);
  load_span(b + span.first, span.count, of_b);
  unsigned passes = 0;
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    if (i >= span.count) break;
    const float code_a = static_cast<float>(of_a[i]);
    const float code_b = static_cast<float>(of_b[i]);
    const float code = requantized_add_code(code_a, code_b, add);
    y[i] = static_cast<CodeY>(out.code(code));
    passes |= (out.passes(code, real_sum(code_a, left, code_b, right)) ? 1U : 0U) << i;
  }
  store_span(y, span.count, codes + span.first);
  store_mask(passes, span, mask);
}

template <typename CodeA, typename CodeB>
__global__ void __launch_bounds__(kThreads)
    dequantize_add_kernel(std::int64_t n, Activation activation, const CodeA* a,
                          const float* scale_a, const std::int32_t* zero_a, const CodeB* b,
                          const float* scale_b, const std::int32_t* zero_b, float* out) {
  const std::int64_t i = cuda::element_index();
  if (i >= n) return;
  out[i] = linear_part(activation)
               .clamp(real_sum(static_cast<float>(a[i]), add_operand({scale_a, zero_a}),
                               static_cast<float>(b[i]), add_operand({scale_b, zero_b})));
}

template <typename Code>
__global__ void __launch_bounds__(kThreads)
    activate_codes_kernel(std::int64_t n, Activation activation, const Code* x, const float* scale,
                          const std::int32_t* zero_point, CodeRange range, Code* codes,
                          std::uint8_t* mask) {
  const Span span = span_of(blockIdx.x, n);
  if (span.count == 0) return;
  const CodeRange left = activation_code_range(activation, range, *scale, *zero_point);
  alignas(16) Code y[kEight];
  load_span(x + span.first, span.count, y);
  unsigned passes = 0;
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    if (i >= span.count) break;
    const std::int32_t code = y[i];
    passes |= (code_is_linear(code, activation, left) ? 1U : 0U) << i;
    y[i] = static_cast<Code>(clamp_keeping_nan(code, left.qmin, left.qmax));
  }
  store_span(y, span.count, codes + span.first);
  store_mask(passes, span, mask);
}

template <typename Code>
__global__ void __launch_bounds__(kThreads)
    drop_codes_kernel(std::int64_t n, const std::uint8_t* mask, const Code* x,
                      const std::int32_t* zero_point, Code* codes) {
  const Span span = span_of(blockIdx.x, n);
  if (span.count == 0) return;
  const unsigned keeps = mask[span.first / kEight];
  const Code zero = static_cast<Code>(*zero_point);
  alignas(16) Code y[kEight];
  load_span(x + span.first, span.count, y);
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    if (i < span.count) y[i] = (keeps >> i & 1U) != 0 ? y[i] : zero;
  }
  store_span(y, span.count, codes + span.first);
}

// What dequantize_accumulators writes.
struct RealAccumulator {
  std::int64_t channels;
  LinearPart linear;
  const std::int32_t* acc;
  const std::int32_t* bias;
  const float* product_scale;

  __device__ float operator()(std::int64_t i) const {
    const std::int64_t c = i - cuda::divide(i, channels) * channels;
    return linear.clamp(dequantize_sum(with_bias(acc[i], bias, c), product_scale[c]));
  }
};

template <typename... Parameters, typename... Arguments>
void launch_eights(const CudaQueue& queue, void (*kernel)(std::int64_t, Parameters...),
                   std::int64_t n, Arguments&&... arguments) {
  cuda::launch(kernel, cuda::shape_for_eights(n), cuda::stream_of(queue), n,
               std::forward<Arguments>(arguments)...);
}

}  // namespace

void dequantize_accumulators(const CudaQueue& queue, const Requantize& op, const std::int32_t* acc,
                             const std::int32_t* bias, const float* product_scale, float* out) {
  launch_elements(queue, dequantize_accumulators_kernel, op.rows * op.channels, op.channels,
                  op.activation, acc, bias, product_scale, out);
}

void observe_accumulators(const CudaQueue& queue, const RangeRule& rule, const RangeQuantizer& to,
                          const Requantize& op, const std::int32_t* acc, const std::int32_t* bias,
                          const float* product_scale) {
  cuda::observe_range<RealExtremes>(
      queue, rule, to, op.rows * op.channels,
      RealAccumulator{op.channels, linear_part(op.activation), acc, bias, product_scale});
}

template <typename Code>
void requantize(const CudaQueue& queue, const Requantize& op, const std::int32_t* acc,
                const std::int32_t* bias, const float* product_scale, const float* scale,
                const std::int32_t* zero_point, CodeRange range, Code* codes, std::uint8_t* mask) {
  launch_eights(queue, requantize_kernel<Code>, op.rows * op.channels, op.channels, op.activation,
                acc, bias, product_scale, scale, zero_point, range, codes, mask);
}

template <typename CodeA, typename CodeB, typename CodeY>
void requantize_add(const CudaQueue& queue, std::int64_t n, Activation activation, const CodeA* a,
                    QuantizedOperand of_a, const CodeB* b, QuantizedOperand of_b,
                    const float* scale, const std::int32_t* zero_point, CodeRange range,
                    CodeY* codes, std::uint8_t* mask) {
  launch_eights(queue, requantize_add_kernel<CodeA, CodeB, CodeY>, n, activation, a, of_a.scale,
                of_a.zero_point, b, of_b.scale, of_b.zero_point, scale, zero_point, range, codes,
                mask);
}

template <typename CodeA, typename CodeB>
void dequantize_add(const CudaQueue& queue, std::int64_t n, Activation activation, const CodeA* a,
                    QuantizedOperand of_a, const CodeB* b, QuantizedOperand of_b, float* out) {
  launch_elements(queue, dequantize_add_kernel<CodeA, CodeB>, n, activation, a, of_a.scale,
                  of_a.zero_point, b, of_b.scale, of_b.zero_point, out);
}

template <typename Code>
void activate_codes(const CudaQueue& queue, std::int64_t n, Activation activation, const Code* x,
                    const float* scale, const std::int32_t* zero_point, CodeRange range,
                    Code* codes, std::uint8_t* mask) {
  launch_eights(queue, activate_codes_kernel<Code>, n, activation, x, scale, zero_point, range,
                codes, mask);
}

template <typename Code>
void drop_codes(const CudaQueue& queue, std::int64_t n, const std::uint8_t* mask, const Code* x,
                const std::int32_t* zero_point, Code* codes) {
  launch_eights(queue, drop_codes_kernel<Code>, n, mask, x, zero_point, codes);
}

#define STEELYARD_INSTANTIATE(Code)                                                              \
  template void requantize(const CudaQueue&, const Requantize&, const std::int32_t*,             \
                           const std::int32_t*, const float*, const float*, const std::int32_t*, \
                           CodeRange, Code*, std::uint8_t*);                                     \
  template void activate_codes(const CudaQueue&, std::int64_t, Activation, const Code*,          \
                               const float*, const std::int32_t*, CodeRange, Code*,              \
                               std::uint8_t*);                                                   \
  template void drop_codes(const CudaQueue&, std::int64_t, const std::uint8_t*, const Code*,     \
                           const std::int32_t*, Code*);
STEELYARD_INSTANTIATE(std::int8_t)
STEELYARD_INSTANTIATE(std::uint8_t)
#undef STEELYARD_INSTANTIATE

#define STEELYARD_INSTANTIATE(CodeA, CodeB)                                                    \
  template void dequantize_add(const CudaQueue&, std::int64_t, Activation, const CodeA*,       \
                               QuantizedOperand, const CodeB*, QuantizedOperand, float*);      \
  template void requantize_add(const CudaQueue&, std::int64_t, Activation, const CodeA*,       \
                               QuantizedOperand, const CodeB*, QuantizedOperand, const float*, \
                               const std::int32_t*, CodeRange, std::int8_t*, std::uint8_t*);   \
  template void requantize_add(const CudaQueue&, std::int64_t, Activation, const CodeA*,       \
                               QuantizedOperand, const CodeB*, QuantizedOperand, const float*, \
                               const std::int32_t*, CodeRange, std::uint8_t*, std::uint8_t*);
STEELYARD_INSTANTIATE(std::int8_t, std::int8_t)
STEELYARD_INSTANTIATE(std::int8_t, std::uint8_t)
STEELYARD_INSTANTIATE(std::uint8_t, std::int8_t)
STEELYARD_INSTANTIATE(std::uint8_t, std::uint8_t)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
