// Elements that are repeated along dimensions of size 1.
#include "steelyard/runtime/ops/arithmetic.h"
#include "steelyard/runtime/ops/rows.h"

namespace steelyard::deploy {
namespace {

// As many dimensions as the input: the batch's is the first.
Shape shape(const Graph& graph, const Node& node) {
  const Shape& in = graph.values[node.inputs[0]].shape;
  const Shape& to = node.as<NewShape>().shape;
  bool fits = to.size() == in.size();
  std::int64_t size = 1;
  for (std::size_t i = 0; fits && i < in.size(); ++i) {
    fits =
        to[i] >= 0 && (in[i] == 1 || in[i] == to[i]) && !__builtin_mul_overflow(size, to[i], &size);
  }
  expect(fits, node, "cannot repeat " + shape_string(in) + " to " + shape_string(to));
  return to;
}

void check(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization, node, "is computed in float");
}

void reference(const Operands& op) {
  const Tensor x = real_operand(op, 0);
  const OperandIndex at(x, op.output());
  fill_floats(op.output(), [&](std::int64_t i) { return x.data<float>()[at(i)]; });
}

}  // namespace

OpInfo expand_op() {
  return {.op = Op::kExpand,
          .name = "expand",
          .options = NewShape{},
          .graph_version = 5,
          .shape = shape,
          .check = check,
          .reference = reference};
}

}  // namespace steelyard::deploy
