// Choices between two values by a comparison of two others, in float.
#include "steelyard/runtime/ops/arithmetic.h"
#include "steelyard/runtime/ops/rows.h"

namespace steelyard::deploy {
namespace {

void check(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization, node, "is computed in float");
}

template <bool (*holds)(float, float)>
void reference(const Operands& op) {
  const Tensor x = real_operand(op, 0), y = real_operand(op, 1), a = real_operand(op, 2),
               b = real_operand(op, 3);
  const OperandIndex at_x(x, op.output()), at_y(y, op.output()), at_a(a, op.output()),
      at_b(b, op.output());
  fill_floats(op.output(), [&](std::int64_t i) {
    return holds(x.data<float>()[at_x(i)], y.data<float>()[at_y(i)]) ? a.data<float>()[at_a(i)]
                                                                     : b.data<float>()[at_b(i)];
  });
}

OpInfo row(Op op, const char* name, void (*reference)(const Operands&)) {
  return {.op = op,
          .name = name,
          .inputs = 4,
          .takes_constants = true,
          .graph_version = 7,
          .shape = broadcast_shape,
          .check = check,
          .reference = reference};
}

bool greater(float x, float y) { return x > y; }
bool greater_equal(float x, float y) { return x >= y; }
bool equal(float x, float y) { return x == y; }

}  // namespace

OpInfo where_greater_op() { return row(Op::kWhereGreater, "where_greater", reference<greater>); }

OpInfo where_greater_equal_op() {
  return row(Op::kWhereGreaterEqual, "where_greater_equal", reference<greater_equal>);
}

OpInfo where_equal_op() { return row(Op::kWhereEqual, "where_equal", reference<equal>); }

}  // namespace steelyard::deploy
