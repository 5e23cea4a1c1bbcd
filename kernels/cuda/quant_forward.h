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

// True where a thread's elements are eight, lie ready for wide accesses, and their sets are known
// without a division each. The code for the others takes them one by one, rolled up: unrolled it
// was 26,000 instructions.
template <typename V, typename S>
__device__ bool is_plain(const ForwardCall<V>& call, const S& sets, const Span& span) {
  return call.x.wide && call.y.wide && sets.eight_known() && span.count == kEight;
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
    T y[kEight];
    if (sets.eight_share) {
      const Affine<T> p = call.parameters.at(sets.of(span.first));
#pragma unroll
      for (int i = 0; i < kEight; ++i) y[i] = value(i, p);
    } else {
      sets.for_eight(span.first,
                     [&](int i, std::int64_t set) { y[i] = value(i, call.parameters.at(set)); });
    }
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

  __device__ void take_mask(int i, T code, const Affine<T>& p) {
    mask |= (code_is_inside(code, p) ? 1U : 0U) << i;
  }
  // The code of element i with the value x.
  __device__ void take_code(int bits, int i, T x, T code, const Affine<T>& p) {
    const std::uint32_t field = (1U << bits) - 1U;
    const auto low = static_cast<std::uint32_t>(to_integer_code(code, p)) & field;
    codes |= static_cast<std::uint64_t>(low) << (i * bits);
    nan += x != x ? 1U : 0U;
  }
  template <typename V>
  __device__ void store(const ForwardCall<V>& call, bool on, const Span& span) const {
    if (call.operation != QuantOperation::kFakeQuantize) {
      store_codes(codes, call.bits, span, call.codes);
    }
    if (call.mask != nullptr) {
      call.mask[span.first / kEight] =
          static_cast<std::uint8_t>(on ? mask : (1U << span.count) - 1U);
    }
    if (nan != 0 && call.nan_count != nullptr) atomicAdd(call.nan_count, nan);
  }
};

// Quantizes or fake-quantizes eight values that is_plain() holds for. Where the quantizer is off,
// values pass.
template <typename V, typename S>
__device__ void quantize_eight(const ForwardCall<V>& call, const S& sets, const Span& span,
                               const ComputeType<V>* x) {
  using T = ComputeType<V>;
  const bool on = is_on(call.quantizing) && is_on(call.initialized);
  visit_codes_of_eight(
      sets, call.parameters, span.first, x, [&](const T* codes, const auto& parameters_of) {
        Quantized<T> quantized;
        if (call.mask != nullptr) {
#pragma unroll
          for (int i = 0; i < kEight; ++i) quantized.take_mask(i, codes[i], parameters_of(i));
        }
        if (call.operation == QuantOperation::kFakeQuantize) {
          T y[kEight];
#pragma unroll
          for (int i = 0; i < kEight; ++i) {
            const Affine<T> p = parameters_of(i);
            y[i] = on ? dequantize_code(clamp_code(codes[i], p), p.zero_point, p.scale) : x[i];
          }
          call.y.store_eight(span.first, y);
        } else if (call.bits == 8) {  // where shifts are known
#pragma unroll
          for (int i = 0; i < kEight; ++i)
            quantized.take_code(8, i, x[i], codes[i], parameters_of(i));
        } else {
#pragma unroll
          for (int i = 0; i < kEight; ++i)
            quantized.take_code(call.bits, i, x[i], codes[i], parameters_of(i));
        }
        quantized.store(call, on, span);
      });
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
    const T x = call.x.get(index), code = unclamped_code(x, p);
    quantized.take_mask(i, code, p);
    if (call.operation == QuantOperation::kFakeQuantize) {
      call.y.set(index, on ? dequantize_code(clamp_code(code, p), p.zero_point, p.scale) : x);
    } else {
      quantized.take_code(call.bits, i, x, code, p);
    }
  }
  quantized.store(call, on, span);
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
