// The forward of a thread's eight elements, for the kernels that quantize one tensor or many.
#pragma once

#include "kernels/cuda/eight.h"
#include "kernels/quant_problem.h"

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
  const std::uint8_t* initialised;
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
          moving ? args.initialised : nullptr};
}

template <typename V>
__device__ void dequantize_eight(const ForwardCall<V>& call, const Sets& sets, const Span& span) {
  using T = ComputeType<V>;
  const std::uint64_t word = load_codes(call.codes, call.bits, span);
  Affine<T> p = call.parameters.at(sets.of(span.first));
  T y[kEight];
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    if (i < span.count) {
      if (!sets.eight_share) p = call.parameters.at(sets.of(span.first + i));
      const std::int32_t code = decode_code(static_cast<std::uint32_t>(word >> (i * call.bits)),
                                            call.bits, call.is_signed);
      y[i] = dequantize_code(static_cast<T>(code), p.zero_point, p.scale);
    } else {
      y[i] = T(0);
    }
  }
  call.y.store(span, y);
}

// Quantizes or fake-quantizes x; where the quantizer is off values pass, all of them inside.
template <typename V>
__device__ void quantize_eight(const ForwardCall<V>& call, const Sets& sets, const Span& span,
                               const ComputeType<V>* x) {
  using T = ComputeType<V>;
  const bool on = is_on(call.quantizing) && is_on(call.initialised);
  const bool fake = call.operation == QuantOperation::kFakeQuantize;
  Affine<T> p = call.parameters.at(sets.of(span.first));
  T y[kEight];
  std::uint64_t codes = 0;
  unsigned mask = 0;
  unsigned nan = 0;
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    y[i] = x[i];
    if (i < span.count) {
      if (!sets.eight_share) p = call.parameters.at(sets.of(span.first + i));
      const T code = unclamped_code(x[i], p);
      mask |= (code_is_inside(code, p) || !on ? 1U : 0U) << i;
      if (fake) {
        if (on) y[i] = dequantize_code(clamp_code(code, p), p.zero_point, p.scale);
      } else {
        const std::uint32_t field = (1U << call.bits) - 1U;
        codes |=
            static_cast<std::uint64_t>(static_cast<std::uint32_t>(to_integer_code(code, p)) & field)
            << (i * call.bits);
        nan += x[i] != x[i] ? 1U : 0U;
      }
    }
  }
  if (fake) {
    call.y.store(span, y);
  } else {
    store_codes(codes, call.bits, span, call.codes);
  }
  if (call.mask != nullptr) call.mask[span.first / kEight] = static_cast<std::uint8_t>(mask);
  if (nan != 0 && call.nan_count != nullptr) atomicAdd(call.nan_count, nan);
}

template <typename V>
__device__ void forward_eight(const ForwardCall<V>& call, const Sets& sets, const Span& span) {
  if (call.operation == QuantOperation::kDequantize) {
    dequantize_eight(call, sets, span);
    return;
  }
  ComputeType<V> x[kEight];
  call.x.load(span, x);
  quantize_eight(call, sets, span, x);
}

}  // namespace steelyard::kernels::cuda
