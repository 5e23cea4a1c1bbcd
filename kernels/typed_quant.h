// The problems and arguments of QuantPlan's kernels that stand for those of
// kernels/fake_quantize/fake_quantize.h.
#pragma once

#include <type_traits>

#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/quant_problem.h"

namespace steelyard::kernels {

template <typename T>
QuantProblem typed_problem(QuantOperation operation, const ChannelLayout& layout, CodeRange range) {
  QuantProblem problem;
  problem.operation = operation;
  problem.value_type = std::is_same_v<T, double> ? ValueType::kF64 : ValueType::kF32;
  problem.range = range;
  problem.map = make_set_map(layout);
  return problem;
}

template <typename Code>
constexpr CodeType code_type_of() {
  return std::is_signed_v<Code> ? CodeType::kS8 : CodeType::kU8;
}

// The arguments' pointers are not const because some operations write what others read.
template <typename T, typename Code>
QuantProblem problem_of(const Quantize<T, Code>& k) {
  QuantProblem problem = typed_problem<T>(QuantOperation::kQuantize, k.layout, k.range);
  problem.code_type = code_type_of<Code>();
  return problem;
}
template <typename T, typename Code>
QuantArgs args_of(const Quantize<T, Code>& k) {
  QuantArgs args;
  args.x = k.x;
  args.scale = const_cast<T*>(k.scale);
  args.zero_point = const_cast<std::int32_t*>(k.zero_point);
  args.codes = k.codes;
  args.mask = k.mask;
  args.non_finite_count = k.nan_count;
  return args;
}

template <typename T, typename Code>
QuantProblem problem_of(const Dequantize<T, Code>& k) {
  QuantProblem problem = typed_problem<T>(QuantOperation::kDequantize, k.layout, CodeRange{});
  problem.code_type = code_type_of<Code>();
  return problem;
}
template <typename T, typename Code>
QuantArgs args_of(const Dequantize<T, Code>& k) {
  QuantArgs args;
  args.codes = const_cast<Code*>(k.codes);
  args.scale = const_cast<T*>(k.scale);
  args.zero_point = const_cast<std::int32_t*>(k.zero_point);
  args.y = k.y;
  return args;
}

template <typename T>
QuantProblem problem_of(const ApplyMask<T>& k) {
  return typed_problem<T>(QuantOperation::kFakeQuantize, ChannelLayout::per_tensor(k.n),
                          CodeRange{});
}
template <typename T>
QuantArgs args_of(const ApplyMask<T>& k) {
  QuantArgs args;
  args.mask = const_cast<std::uint8_t*>(k.mask);
  args.grad_y = k.grad_y;
  args.grad_x = k.grad_x;
  return args;
}

}  // namespace steelyard::kernels
