// An image and a weight [O, C/groups, KH, KW].
#include "steelyard/runtime/ops/products/linear_map.h"
#include "steelyard/runtime/ops/rows.h"

namespace steelyard::deploy {
namespace {

Shape shape(const Graph& graph, const Node& node) {
  const auto s = conv2d_shape(batched(graph.values[node.inputs[0]].shape),
                              node.weights->weight.shape(), node.as<Conv2dGeometry>());
  return {s.out_h(), s.out_w(), s.out_channels};
}

void reference(const Operands& op) {
  const Shape& weight = op.node.weights->weight.shape();
  run_linear_map(op, windows_of(op, {weight[2], weight[3]}, op.node.as<Conv2dGeometry>()));
}

}  // namespace

OpInfo conv2d_op() {
  return {.op = Op::kConv2d,
          .name = "conv2d",
          .has_weights = true,
          .fuses_activation = true,
          .fixed_point = true,
          .options = Conv2dGeometry{},
          .shape = shape,
          .check = check_weights,
          .reference = reference,
          .fast = run_linear_map};
}

}  // namespace steelyard::deploy
