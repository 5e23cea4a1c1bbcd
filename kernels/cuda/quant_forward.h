// The forward of a thread's eight elements, for the kernels that quantize one tensor or many. `S`
// is Sets or ChannelSets.
#pragma once

#include "steelyard/kernels/cuda/eight.h"
#include "steelyard/kernels/quant_problem.h"

namespace steelyard::kernels::cuda {

template <typename V>
struct ForwardCall {
  using T = ComputeType<V>;

  QuantOperation operation;
  int bits;
  bool is_signed;
  std::int64_t elements;
  ValueArray<V> x;
  ValueArray<V> y;
  SetParameters<T> parameters;
  std::uint8_t* codes;
  std::uint8_t* mask;
  unsigned long long* nan_count;
  const std::uint8_t* quantizing;
  const std::uint8_t* initialized;
};

template <typename V>
ForwardCall<V> forward_call(const QuantProblem& problem, const QuantArgs& args) {
  using T = ComputeType<V>;
  const bool given = problem.statistics == Statistics::kGiven;
  const bool moving =
      problem.statistics == Statistics::kCurrent || problem.statistics == Statistics::kDelayed;
  return {problem.operation,
          code_bits(problem.code_type),
          code_is_signed(problem.code_type),
          problem.map.elements,
          value_array<V>(args.x, problem.strides),
          value_array<V>(args.y, problem.strides),
          {static_cast<const T*>(args.scale), args.zero_point, problem.range},
          static_cast<std::uint8_t*>(args.codes),
          args.mask,
          given ? reinterpret_cast<unsigned long long*>(args.non_finite_count) : nullptr,
          args.quantizing,
          moving ? args.initialized : nullptr};
}

// True where a thread's elements are eight, share their scale and lie ready for wide accesses. The
// code for the others takes them one by one, rolled up: unrolled it was 26,000 instructions.
template <typename V, typename S>
__device__ bool is_plain(const ForwardCall<V>& call, const S& sets, const Span& span) {
  return call.x.wide && call.y.wide && sets.eight_share && span.count == kEight;
}

template <typename V, typename S>
__device__ void dequantize_span(const ForwardCall<V>& call, const S& sets, const Span& span) {
  using T = ComputeType<V>;
  const std::uint64_t word = load_codes(call.codes, call.bits, span);
  const auto value = [&](int i, const Affine<T>& p) {
    const auto field = static_cast<std::uint32_t>(word >> (i * call.bits));
    return dequantize_code(static_cast<T>(decode_code(field, call.bits, call.is_signed)),
                           p.zero_point, p.scale);
  };
  if (is_plain(call, sets, span)) {
    const Affine<T> p = call.parameters.at(sets.of(span.first));
    T y[kEight];
#pragma unroll
    for (int i = 0; i < kEight; ++i) y[i] = value(i, p);
    call.y.store_eight(span.first, y);
    return;
  }
#pragma unroll 1
  for (int i = 0; i < span.count; ++i) {
    call.y.set(span.first + i, value(i, call.parameters.at(sets.of(span.first + i))));
  }
}

// Codes, mask and NaN of up to eight elements, gathered in registers.
template <typename T>
struct Quantized {
  std::uint64_t codes = 0;
  unsigned mask = 0;
  unsigned nan = 0;

  // Element i; gives its fake-quantized value. Where the quantizer is off, values pass.
  template <typename V>
  __device__ T take(const ForwardCall<V>& call, bool on, int i, T x, const Affine<T>& p) {
    const T code = unclamped_code(x, p);
    mask |= (code_is_inside(code, p) || !on ? 1U : 0U) << i;
    if (call.operation == QuantOperation::kFakeQuantize) {
      return on ? dequantize_code(clamp_code(code, p), p.zero_point, p.scale) : x;
    }
    const std::uint32_t field = (1U << call.bits) - 1U;
    const auto bits = static_cast<std::uint32_t>(to_integer_code(code, p)) & field;
    codes |= static_cast<std::uint64_t>(bits) << (i * call.bits);
    nan += x != x ? 1U : 0U;
    return x;
  }
  template <typename V>
  __device__ void store(const ForwardCall<V>& call, const Span& span) const {
    if (call.operation != QuantOperation::kFakeQuantize) {
      store_codes(codes, call.bits, span, call.codes);
    }
    if (call.mask != nullptr) call.mask[span.first / kEight] = static_cast<std::uint8_t>(mask);
    if (nan != 0 && call.nan_count != nullptr) atomicAdd(call.nan_count, nan);
  }
};

// Quantizes or fake-quantizes eight values that is_plain() holds for.
template <typename V, typename S>
__device__ void quantize_eight(const ForwardCall<V>& call, const S& sets, const Span& span,
                               const ComputeType<V>* x) {
  using T = ComputeType<V>;
  const bool on = is_on(call.quantizing) && is_on(call.initialized);
  const Affine<T> p = call.parameters.at(sets.of(span.first));
  Quantized<T> quantized;
  T y[kEight];
#pragma unroll
  for (int i = 0; i < kEight; ++i) y[i] = quantized.take(call, on, i, x[i], p);
  if (call.operation == QuantOperation::kFakeQuantize) call.y.store_eight(span.first, y);
  quantized.store(call, span);
}

// The same for any span.
template <typename V, typename S>
__device__ void quantize_one_by_one(const ForwardCall<V>& call, const S& sets, const Span& span) {
  using T = ComputeType<V>;
  const bool on = is_on(call.quantizing) && is_on(call.initialized);
  Quantized<T> quantized;
#pragma unroll 1
  for (int i = 0; i < span.count; ++i) {
    const std::int64_t index = span.first + i;
    const Affine<T> p = call.parameters.at(sets.of(index));
    const T y = quantized.take(call, on, i, call.x.get(index), p);
    if (call.operation == QuantOperation::kFakeQuantize) call.y.set(index, y);
  }
  quantized.store(call, span);
}

template <typename V, typename S>
__device__ void forward_span(const ForwardCall<V>& call, const S& sets, const Span& span) {
  if (call.operation == QuantOperation::kDequantize) {
    dequantize_span(call, sets, span);
  } else if (is_plain(call, sets, span)) {
    ComputeType<V> x[kEight];
    call.x.load_eight(span.first, x);
    quantize_eight(call, sets, span, x);
  } else {
    quantize_one_by_one(call, sets, span);
  }
}

// Quantizes one tensor with scales that are known.
template <typename V>
__global__ void __launch_bounds__(kThreads) forward_kernel(ForwardCall<V> call, Sets sets) {
  const Span span = span_of(blockIdx.x, call.elements);
  if (span.count > 0) forward_span(call, sets, span);
}

}  // namespace steelyard::kernels::cuda
