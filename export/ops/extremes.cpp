// The larger or smaller of two values, of floats.
#include <cmath>

#include "steelyard/export/ops/arithmetic.h"
#include "steelyard/export/ops/rows.h"

namespace steelyard::deploy {
namespace {

void check(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization, node, "is computed in float");
}

using Reference = void (*)(const Operands&);
using Onnx = void (*)(OnnxNodes&, const Node&, const std::string&);

OpInfo row(Op op, const char* name, Reference reference, Onnx onnx) {
  return {.op = op,
          .name = name,
          .recorded = {name},
          .inputs = 2,
          .takes_constants = true,
          .graph_version = 5,
          .shape = broadcast_shape,
          .check = check,
          .reference = reference,
          .onnx = onnx};
}

}  // namespace

// A NaN wins.
OpInfo maximum_op() {
  return row(
      Op::kMaximum, "maximum",
      [](const Operands& op) {
        combine_floats(op, [](float a, float b) { return a > b || std::isnan(a) ? a : b; });
      },
      [](OnnxNodes& nodes, const Node& node, const std::string& output) {
        add_arithmetic(nodes, node, "Max", output);
      });
}

OpInfo minimum_op() {
  return row(
      Op::kMinimum, "minimum",
      [](const Operands& op) {
        combine_floats(op, [](float a, float b) { return a < b || std::isnan(a) ? a : b; });
      },
      [](OnnxNodes& nodes, const Node& node, const std::string& output) {
        add_arithmetic(nodes, node, "Min", output);
      });
}

}  // namespace steelyard::deploy
