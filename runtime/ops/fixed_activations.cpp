#include "steelyard/runtime/ops/fixed_activations.h"

#include <fmt/core.h>

#include "steelyard/kernels/fixed_functions.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

const Quantization& input_of(const Graph& graph, const Node& node) {
  return *graph.values[node.inputs[0]].quantization;
}
const Quantization& output_of(const Graph& graph, const Node& node) {
  return *graph.values[node.output].quantization;
}

}  // namespace

CodeTable activation_table(const Graph& graph, const Node& node) {
  const Quantization& in = input_of(graph, node);
  const Quantization& out = output_of(graph, node);
  if (node.op == Op::kSigmoid) {
    const kernels::FixedInput input = kernels::make_fixed_logistic(in.scale, out.rounding);
    return code_table_of(in, out, [&](std::int32_t x) {
      return kernels::fixed_logistic_code(x, input, out.rounding);
    });
  }
  if (node.op == Op::kTanh) {
    const kernels::FixedInput input = kernels::make_fixed_logistic(in.scale, out.rounding);
    return code_table_of(
        in, out, [&](std::int32_t x) { return kernels::fixed_tanh_code(x, input, out.rounding); });
  }
  if (node.op == Op::kHardswish) {
    const auto rule = kernels::make_fixed_hard_swish(in.scale, out.scale, out.rounding);
    return code_table_of(in, out, [&](std::int32_t x) {
      return kernels::fixed_hard_swish(x, rule) + out.zero_point;
    });
  }
  const auto slope = static_cast<float>(node.as<NegativeSlope>().slope);
  const auto rule = kernels::make_fixed_leaky_relu(in.scale, slope, out.scale, out.rounding);
  return code_table_of(in, out, [&](std::int32_t x) {
    return kernels::fixed_code(x, x >= 0 ? rule.identity : rule.slope, out.zero_point,
                               out.rounding);
  });
}

void check_fixed_activation(const Graph& graph, const Node& node) {
  if (!op_info(node.op).fixed_point) return;
  const auto& in = graph.values[node.inputs[0]].quantization;
  const Quantization& out = output_of(graph, node);
  expect(in.has_value(), node, "codes are made of codes");
  const auto scales = [&] { return fmt::format("{} and {}", in->scale, out.scale); };
  if (node.op == Op::kSigmoid || node.op == Op::kTanh) {
    const bool both_signs = node.op == Op::kTanh;
    expect(
        out.scale == (both_signs ? 0x1p-7F : 0x1p-8F) && out.zero_point == (both_signs ? 0 : -128),
        node,
        both_signs ? "in fixed point its codes have steps of 2^-7 around 0"
                   : "in fixed point its codes have steps of 2^-8 from -128 on");
    expect(kernels::has_fixed_input(in->scale, kernels::kLogisticBits), node,
           fmt::format("the scale {} of its input has no form in fixed point", in->scale));
  } else if (node.op == Op::kHardswish) {
    expect(kernels::has_fixed_hard_swish(in->scale, out.scale), node,
           "16 bits have no room for the scales " + scales() + " of its input and output");
  } else {
    expect(node.as<NegativeSlope>().slope >= 0, node, "in fixed point its slope is not negative");
  }
}

void fixed_activate(const Operands& op) {
  const CodeTable table = activation_table(op.graph, op.node);
  fill_codes(op.output(), [&](std::int64_t i) {
    return int{table[static_cast<std::uint8_t>(code_at(op.input(0), i))]};
  });
}

}  // namespace steelyard::deploy
