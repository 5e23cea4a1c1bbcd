// The problems and arguments that the typed functions of kernels/fake_quantize.h stand for.
#pragma once

#include <type_traits>

#include "steelyard/kernels/fake_quantize.h"
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

// The arguments' pointers are not const because some operations write what others read.
template <typename T>
QuantArgs typed_args(const T* scale, const std::int32_t* zero_point) {
  QuantArgs args;
  args.scale = const_cast<T*>(scale);
  args.zero_point = const_cast<std::int32_t*>(zero_point);
  return args;
}

template <typename Code>
constexpr CodeType code_type_of() {
  return std::is_signed_v<Code> ? CodeType::kS8 : CodeType::kU8;
}

}  // namespace steelyard::kernels
