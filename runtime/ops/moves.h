// Outputs whose elements are elements of the input.
#pragma once

#include <vector>

#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {

inline constexpr std::int64_t kBorder = -1;

// Element i of a sample of the output is element source(i) of the same sample of the input, or the
// border's value, whose code is the zero point, where that is kBorder.
template <typename F>
void move(const Operands& op, double border, const F& source) {
  const std::int64_t from = shape_size(op.input_value(0).shape);
  const std::int64_t to = shape_size(op.output_value().shape);
  if (const auto& q = op.output_value().quantization) {
    return fill_codes(op.output(), [&](std::int64_t i) {
      const std::int64_t at = source(i % to);
      return at == kBorder ? q->zero_point : code_at(op.input(0), i / to * from + at);
    });
  }
  const Tensor x = real_operand(op, 0);
  fill_floats(op.output(), [&](std::int64_t i) {
    const std::int64_t at = source(i % to);
    return at == kBorder ? static_cast<float>(border) : x.data<float>()[i / to * from + at];
  });
}

inline const Shape& input_shape(const Graph& graph, const Node& node) {
  return graph.values[node.inputs[0]].shape;
}
inline const Shape& output_shape(const Graph& graph, const Node& node) {
  return graph.values[node.output].shape;
}

// How far apart neighbours along each dimension lie.
inline std::vector<std::int64_t> strides_of(const Shape& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

}  // namespace steelyard::deploy
