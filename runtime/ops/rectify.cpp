// ReLU and ReLU6 as operations of their own: codes of the input, clamped. Clamps of floats.
#include <algorithm>
#include <cmath>

#include "steelyard/runtime/ops/rows.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

Shape shape(const Graph& graph, const Node& node) { return graph.values[node.inputs[0]].shape; }

void activate(const Operands& op, kernels::Activation activation) {
  if (const auto& q = op.output_value().quantization) {
    const kernels::CodeRange left =
        kernels::activation_code_range(activation, q->range, q->scale, q->zero_point, q->rounding);
    fill_codes(op.output(), [&](std::int64_t i) {
      return std::clamp(code_at(op.input(0), i), left.qmin, left.qmax);
    });
    return;
  }
  const Tensor x = real_operand(op, 0);
  const float top = activation == kernels::Activation::kRelu6 ? 6.0F : INFINITY;
  fill_floats(op.output(), [&](std::int64_t i) {
    return kernels::clamp_keeping_nan(x.data<float>()[i], 0.0F, top);
  });
}

void check_floats(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization, node, "is computed in float");
}

void check_bounds(const Graph& graph, const Node& node) {
  check_floats(graph, node);
  expect(node.as<Bounds>().lo <= node.as<Bounds>().hi, node, "expected bounds in order");
}

void clamp_floats(const Operands& op) {
  const Tensor x = real_operand(op, 0);
  const auto lo = static_cast<float>(op.node.as<Bounds>().lo),
             hi = static_cast<float>(op.node.as<Bounds>().hi);
  fill_floats(op.output(), [&](std::int64_t i) {
    return kernels::clamp_keeping_nan(x.data<float>()[i], lo, hi);
  });
}

}  // namespace

OpInfo relu_op() {
  return {.op = Op::kRelu,
          .name = "relu",
          .keeps_codes = true,
          .shape = shape,
          .reference = [](const Operands& op) { activate(op, kernels::Activation::kRelu); },
          .fast = map_bytes};
}

OpInfo clamp_op() {
  return {.op = Op::kClamp,
          .name = "clamp",
          .options = Bounds{},
          .graph_version = 5,
          .shape = shape,
          .check = check_bounds,
          .reference = clamp_floats};
}

OpInfo relu6_op() {
  return {.op = Op::kRelu6,
          .name = "relu6",
          .keeps_codes = true,
          .shape = shape,
          .reference = [](const Operands& op) { activate(op, kernels::Activation::kRelu6); },
          .fast = map_bytes};
}

}  // namespace steelyard::deploy
