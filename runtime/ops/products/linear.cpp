// Features [..., I] times a weight [O, I].
#include "steelyard/runtime/ops/products/linear_map.h"
#include "steelyard/runtime/ops/rows.h"

namespace steelyard::deploy {
namespace {

Shape shape(const Graph& graph, const Node& node) {
  const Shape& in = graph.values[node.inputs[0]].shape;
  const Shape& weight = node.weights->weight.shape();
  expect(weight.size() == 2 && !in.empty() && in.back() == weight[1], node,
         "input " + shape_string(in) + " does not fit the weight " + shape_string(weight));
  Shape out = in;
  out.back() = weight[0];
  return out;
}

// A row of features is a pixel, and the weight a convolution of 1 x 1.
void reference(const Operands& op) {
  const Shape& in = op.input_value(0).shape;
  const std::int64_t rows = shape_size(in) / in.back();
  run_linear_map(op, Windows{rows, 1, in.back(), rows, 1, {1, 1}, {1, 1}, {0, 0}, {1, 1}});
}

bool fast(const Operands& op) { return run_float_rows(op) || run_linear_map(op); }

}  // namespace

OpInfo linear_op() {
  return {.op = Op::kLinear,
          .name = "linear",
          .has_weights = true,
          .fuses_activation = true,
          .fixed_point = true,
          .shape = shape,
          .check = check_weights,
          .reference = reference,
          .fast = fast};
}

}  // namespace steelyard::deploy
