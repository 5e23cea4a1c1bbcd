// The forward of a thread's eight elements, for the kernels that quantize one tensor or many. `S`
// is Sets or ChannelSets.
#pragma once

#include "steelyard/kernels/cuda/eight.h"
#include "steelyard/kernels/quant_plan/quant_problem.h"

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

// What a thread reads once for all its spans.
template <typename T>
struct ForwardState {
  bool on;  // else values pass
  Multiples<T> only;
};

template <typename V, typename S>
__device__ ForwardState<ComputeType<V>> forward_state(const ForwardCall<V>& call, const S& sets) {
  return {is_on(call.quantizing) && is_on(call.initialized), only_set(sets, call.parameters)};
}

// True where eight elements lie ready for wide accesses, and their sets are known without a
// division each. The code for the others takes them one by one, rolled up: unrolled it was 26,000
// instructions.
template <typename V, typename S>
__device__ bool has_plain_eights(const ForwardCall<V>& call, const S& sets) {
  return call.x.wide && call.y.wide && sets.eight_known();
}

template <typename V, typename S>
__device__ void dequantize_span(const ForwardCall<V>& call, const S& sets,
                                const ForwardState<ComputeType<V>>& state, const Span& span) {
  using T = ComputeType<V>;
  const std::uint64_t word = load_codes(call.codes, call.bits, span);
  const auto value = [&](int i, const auto& p) {
    const auto field = static_cast<std::uint32_t>(word >> (i * call.bits));
    return dequantize_code(static_cast<T>(decode_code(field, call.bits, call.is_signed)),
                           p.zero_point, p.scale);
  };
  if (span.count == kEight && has_plain_eights(call, sets)) {
    T y[kEight];
    if (sets.eight_share) {
      const Multiples<T> p = set_of_element(sets, call.parameters, state.only, span.first);
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

template <typename V, typename S>
__device__ bool quantizes_eights(const ForwardCall<V>& call, const S& sets) {
  return call.operation != QuantOperation::kDequantize && has_plain_eights(call, sets);
}

// What is written for a span besides values: codes, mask, and the number of NaN.
template <typename V>
__device__ void store_span_codes(const ForwardCall<V>& call, const Span& span, std::uint64_t codes,
                                 unsigned nan) {
  store_codes(codes, call.bits, span, call.codes);
  if (nan != 0 && call.nan_count != nullptr) atomicAdd(call.nan_count, nan);
}
template <typename V>
__device__ void store_span_mask(const ForwardCall<V>& call, bool on, const Span& span,
                                unsigned mask) {
  if (call.mask == nullptr) return;
  call.mask[span.first / kEight] = static_cast<std::uint8_t>(on ? mask : (1U << span.count) - 1U);
}

// The lowest bits of eight numbers, one after the other.
template <typename T>
__device__ std::uint64_t join_codes(const T (&numbers)[kEight], int bits) {
  std::uint32_t codes[kEight];
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    codes[i] = static_cast<std::uint32_t>(bits_as<BitsOf<T>>(numbers[i]));
  }
  if (bits == 8) {
    const auto join_four = [&](int i) {
      return __byte_perm(__byte_perm(codes[i], codes[i + 1], 0x0040),
                         __byte_perm(codes[i + 2], codes[i + 3], 0x0040), 0x5410);
    };
    return join_four(0) | static_cast<std::uint64_t>(join_four(4)) << 32;
  }
  std::uint64_t word = 0;
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    word |= static_cast<std::uint64_t>(codes[i] & ((1U << bits) - 1U)) << (i * bits);
  }
  return word;
}

// Quantizes or fake-quantizes the eight values at `first`, where quantizes_eights().
template <typename V, typename S>
__device__ void quantize_eight(const ForwardCall<V>& call, const S& sets,
                               const ForwardState<ComputeType<V>>& state, std::int64_t first) {
  using T = ComputeType<V>;
  const Span span{first, kEight};
  T x[kEight];
  call.x.load_eight(first, x);
  const bool fake = call.operation == QuantOperation::kFakeQuantize;
  if (fake && !state.on) {
    call.y.store_eight(first, x);
    store_span_mask(call, false, span, 0);
    return;
  }
  T multiples[kEight], clamped[kEight], results[kEight];
  const unsigned nan = each_multiple_of_eight(
      sets, call.parameters, state.only, first, x, [&](int i, T multiple, const Multiples<T>& p) {
        multiples[i] = multiple;
        clamped[i] = p.clamp(multiple);
        // The real value, or a number whose lowest bits are the code: either is one rounding.
        results[i] = std::fma(clamped[i], fake ? p.scale : T(1), fake ? T(0) : p.code_of_zero());
      });
  if (call.mask != nullptr) {
    unsigned mask = 0;
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      mask |= (is_unchanged(multiples[i], clamped[i]) ? 1U : 0U) << i;
    }
    store_span_mask(call, state.on, span, mask);
  }
  if (!fake) {
    store_span_codes(call, span, join_codes(results, call.bits), nan);
    return;
  }
  if (nan != 0) {
#pragma unroll
    for (int i = 0; i < kEight; ++i) results[i] = x[i] == x[i] ? results[i] : x[i] + T(0);
  }
  call.y.store_eight(first, results);
}

// quantize_eight() for any span, value by value.
template <typename V, typename S>
__device__ void quantize_one_by_one(const ForwardCall<V>& call, const S& sets,
                                    const ForwardState<ComputeType<V>>& state, const Span& span) {
  using T = ComputeType<V>;
  const std::uint32_t field = (1U << call.bits) - 1U;
  std::uint64_t codes = 0;
  unsigned mask = 0, nan = 0;
#pragma unroll 1
  for (int i = 0; i < span.count; ++i) {
    const std::int64_t index = span.first + i;
    const CodeGrid<T> p = call.parameters.at(sets.of(index));
    const T x = call.x.get(index), code = unclamped_code(x, p);
    mask |= (code_is_inside(code, p) ? 1U : 0U) << i;
    if (call.operation == QuantOperation::kFakeQuantize) {
      call.y.set(index, state.on ? dequantize_code(clamp_code(code, p), p.zero_point, p.scale) : x);
    } else {
      const auto low = static_cast<std::uint32_t>(to_integer_code(code, p)) & field;
      codes |= static_cast<std::uint64_t>(low) << (i * call.bits);
      nan += x != x ? 1U : 0U;
    }
  }
  if (call.operation != QuantOperation::kFakeQuantize) store_span_codes(call, span, codes, nan);
  store_span_mask(call, state.on, span, mask);
}

// Spans that are no eights which quantize_eight() could take.
template <typename V, typename S>
__device__ void forward_other_span(const ForwardCall<V>& call, const S& sets,
                                   const ForwardState<ComputeType<V>>& state, const Span& span) {
  if (call.operation == QuantOperation::kDequantize) {
    dequantize_span(call, sets, state, span);
  } else {
    quantize_one_by_one(call, sets, state, span);
  }
}

// Quantizes one tensor with scales that are known.
template <typename V>
__global__ void __launch_bounds__(kThreads) forward_kernel(ForwardCall<V> call, Sets sets) {
  const ForwardState<ComputeType<V>> state = forward_state(call, sets);
  for_each_eight(
      call.elements, quantizes_eights(call, sets),
      [&](std::int64_t first) { quantize_eight(call, sets, state, first); },
      [&](const Span& span) { forward_other_span(call, sets, state, span); });
}

}  // namespace steelyard::kernels::cuda
