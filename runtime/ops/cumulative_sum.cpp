// Running sums along the last dimension, in float.
#include "steelyard/runtime/ops/rows.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

Shape shape(const Graph& graph, const Node& node) {
  const Shape& in = graph.values[node.inputs[0]].shape;
  expect(!in.empty(), node, "expected an input with a last dimension");
  return in;
}

void check(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization, node, "is computed in float");
}

void reference(const Operands& op) {
  const auto& options = op.node.as<CumulativeSumOptions>();
  const Tensor x = real_operand(op, 0);
  const std::int64_t columns = x.dim(-1);
  for (std::int64_t first = 0; first < x.size(); first += columns) {
    double sum = 0;
    for (std::int64_t step = 0; step < columns; ++step) {
      const std::int64_t at = first + (options.reverse ? columns - 1 - step : step);
      const double before = sum;
      sum += double{x.data<float>()[at]};
      op.output().data<float>()[at] = static_cast<float>(options.exclusive ? before : sum);
    }
  }
}

}  // namespace

OpInfo cumulative_sum_op() {
  return {.op = Op::kCumulativeSum,
          .name = "cumulative_sum",
          .rounds_floats = true,
          .options = CumulativeSumOptions{},
          .graph_version = 15,
          .shape = shape,
          .check = check,
          .reference = reference};
}

}  // namespace steelyard::deploy
