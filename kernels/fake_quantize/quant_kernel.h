// The kernels of QuantPlan that stand for those of kernels/fake_quantize/fake_quantize.h.
#pragma once

#include <type_traits>

#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/quant_plan/quant_kernels.h"

namespace steelyard::kernels {

template <typename T, typename Code = std::uint8_t>
QuantProblem typed_problem(QuantOperation operation, const ChannelLayout& layout,
                           CodeRange range = {}) {
  QuantProblem problem;
  problem.operation = operation;
  problem.value_type = std::is_same_v<T, double>     ? ValueType::kF64
                       : std::is_same_v<T, BFloat16> ? ValueType::kBF16
                                                     : ValueType::kF32;
  problem.code_type = std::is_signed_v<Code> ? CodeType::kS8 : CodeType::kU8;
  problem.range = range;
  problem.map = make_set_map(layout);
  return problem;
}

// The arguments' pointers are not const because some operations write what others read.
template <typename T, typename Code>
QuantForward quant_kernel(const Quantize<T, Code>& k) {
  QuantArgs args;
  args.x = k.x;
  args.scale = const_cast<T*>(k.scale);
  args.zero_point = const_cast<std::int32_t*>(k.zero_point);
  args.codes = k.codes;
  args.mask = k.mask;
  args.non_finite_count = k.nan_count;
  return {typed_problem<T, Code>(QuantOperation::kQuantize, k.layout, k.range), args};
}

template <typename T, typename Code>
QuantForward quant_kernel(const Dequantize<T, Code>& k) {
  QuantArgs args;
  args.codes = const_cast<Code*>(k.codes);
  args.scale = const_cast<T*>(k.scale);
  args.zero_point = const_cast<std::int32_t*>(k.zero_point);
  args.y = k.y;
  return {typed_problem<T, Code>(QuantOperation::kDequantize, k.layout), args};
}

template <typename T>
QuantBackward quant_kernel(const ApplyMask<T>& k) {
  QuantArgs args;
  args.mask = const_cast<std::uint8_t*>(k.mask);
  args.grad_y = k.grad_y;
  args.grad_x = k.grad_x;
  return {typed_problem<T>(QuantOperation::kFakeQuantize, ChannelLayout::per_tensor(k.n)), args};
}

}  // namespace steelyard::kernels
