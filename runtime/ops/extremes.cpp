// The larger or smaller of two values, of floats.
#include <cmath>

#include "steelyard/runtime/ops/arithmetic.h"
#include "steelyard/runtime/ops/rows.h"

namespace steelyard::deploy {
namespace {

void check(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization, node, "is computed in float");
}

using Reference = void (*)(const Operands&);

OpInfo row(Op op, const char* name, Reference reference) {
  return {.op = op,
          .name = name,
          .inputs = 2,
          .takes_constants = true,
          .graph_version = 5,
          .shape = broadcast_shape,
          .check = check,
          .reference = reference};
}

}  // namespace

// A NaN wins.
OpInfo maximum_op() {
  return row(Op::kMaximum, "maximum", [](const Operands& op) {
    combine_floats(op, [](float a, float b) { return a > b || std::isnan(a) ? a : b; });
  });
}

OpInfo minimum_op() {
  return row(Op::kMinimum, "minimum", [](const Operands& op) {
    combine_floats(op, [](float a, float b) { return a < b || std::isnan(a) ? a : b; });
  });
}

}  // namespace steelyard::deploy
