#include "steelyard/export/ops/fixed_activations.h"

#include <bit>

#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/tflite/tflite_nodes.h"
#include "steelyard/runtime/ops/fixed_activations.h"

namespace steelyard::deploy {
namespace {

void activation_tflite(TfliteNodes& nodes, const Node& node) {
  const std::vector<std::int32_t> inputs{nodes.input(node)};
  if (node.op == Op::kSigmoid) {
    nodes.add(TfliteOp::kLogistic, 2, inputs, nodes.output(node));
  } else if (node.op == Op::kTanh) {
    nodes.add(TfliteOp::kTanh, 2, inputs, nodes.output(node));
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

OpForm with_fixed_activation(OpForm form) {
  form.tflite = activation_tflite;
  form.c = activation_c;
  return form;
}

void add_c_map(CNodes& nodes, const Node& node, std::size_t input, const CodeTable& table,
               const CMapped& at) {
  CFields fields;
  fields.set("table", nodes.array(table));
  fields.set("rows", at.rows).set("count", at.count).set("step", at.step).set("first", at.first);
  nodes.call_on(input, "map", "map_node", node, fields);
}

}  // namespace steelyard::deploy
