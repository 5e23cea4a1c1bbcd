#include "steelyard/export/ops/fixed_activations.h"

#include <fmt/core.h>

#include <bit>

#include "steelyard/export/c_nodes.h"
#include "steelyard/export/ops/support.h"
#include "steelyard/export/tflite_nodes.h"
#include "steelyard/kernels/fixed_functions.h"

namespace steelyard::deploy {
namespace {

const Quantization& input_of(const Graph& graph, const Node& node) {
  return *graph.values[node.inputs[0]].quantization;
}
const Quantization& output_of(const Graph& graph, const Node& node) {
  return *graph.values[node.output].quantization;
}

CodeTable activation_table(const Graph& graph, const Node& node) {
  const Quantization& in = input_of(graph, node);
  const Quantization& out = output_of(graph, node);
  if (node.op == Op::kSigmoid) {
    const kernels::FixedInput input = kernels::make_fixed_logistic(in.scale, out.rounding);
    return code_table_of(in, out, [&](std::int32_t x) {
      return kernels::fixed_logistic_code(x, input, out.rounding);
    });
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

void activation_tflite(TfliteNodes& nodes, const Node& node) {
  const std::vector<std::int32_t> inputs{nodes.input(node)};
  if (node.op == Op::kSigmoid) {
    nodes.add(TfliteOp::kLogistic, 2, inputs, nodes.output(node));
  } else if (node.op == Op::kHardswish) {
    nodes.add(TfliteOp::kHardSwish, 1, inputs, nodes.output(node), {.table = 91});
  } else {
    const auto slope = static_cast<float>(node.as<NegativeSlope>().slope);
    nodes.add(TfliteOp::kLeakyRelu, 2, inputs, nodes.output(node),
              {.table = 75, .fields = {{0, 4, std::bit_cast<std::int32_t>(slope)}}});
  }
}

void activation_c(CNodes& nodes, const Node& node) {
  const std::int64_t count = shape_size(nodes.graph().values[node.output].shape);
  nodes.reuse(node);
  add_c_map(nodes, node, node.inputs[0], activation_table(nodes.graph(), node),
            {1, count, count, 0});
}

}  // namespace

void check_fixed_activation(const Graph& graph, const Node& node) {
  if (node.op != Op::kSigmoid && node.op != Op::kHardswish && node.op != Op::kLeakyRelu) return;
  const auto& in = graph.values[node.inputs[0]].quantization;
  const Quantization& out = output_of(graph, node);
  expect(in.has_value(), node, "codes are made of codes");
  const auto scales = [&] { return fmt::format("{} and {}", in->scale, out.scale); };
  if (node.op == Op::kSigmoid) {
    expect(out.scale == 0x1p-8F && out.zero_point == -128, node,
           "in fixed point its codes have steps of 2^-8 from -128 on");
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

OpInfo with_fixed_activation(OpInfo info) {
  info.fixed_point = true;
  info.tflite = activation_tflite;
  info.c = activation_c;
  return info;
}

void add_c_map(CNodes& nodes, const Node& node, std::size_t input, const CodeTable& table,
               const CMapped& at) {
  CFields fields;
  fields.set("table", nodes.array(table));
  fields.set("rows", at.rows).set("count", at.count).set("step", at.step).set("first", at.first);
  nodes.call_on(input, "map", "map_node", node, fields);
}

}  // namespace steelyard::deploy
