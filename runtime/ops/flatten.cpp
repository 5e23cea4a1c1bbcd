// An image [H, W, C] as a row of features [C*H*W], channel by channel.
#include "steelyard/framework/ops/moves/strided.h"
#include "steelyard/runtime/ops/moves.h"
#include "steelyard/runtime/ops/rows.h"

namespace steelyard::deploy {
namespace {

Shape shape(const Graph& graph, const Node& node) {
  const Shape& in = graph.values[node.inputs[0]].shape;
  expect(in.size() == 3 || in.size() == 1, node,
         "expected an image or features, got " + shape_string(in));
  return {shape_size(in)};
}

void reference(const Operands& op) {
  const Shape& in = op.input_value(0).shape;
  const std::int64_t channels = in.size() == 3 ? in[2] : shape_size(in);
  const std::int64_t pixels = channels == 0 ? 0 : shape_size(in) / channels;
  move(op, 0, [&](std::int64_t i) { return i % pixels * channels + i / pixels; });
}

bool fast(const Operands& op) {
  const Tensor& x = op.input(0);
  if (x.dtype() != op.output().dtype()) return false;
  const std::int64_t channels =
      op.input_value(0).shape.size() == 3 ? x.dim(-1) : op.output().dim(1);
  const std::int64_t features = op.output().dim(1), pixels = features / channels;
  ops::gather("flatten", x, {{x.dim(0), channels, pixels}, 0, {features, 1, channels}},
              op.output());
  return true;
}

}  // namespace

OpInfo flatten_op() {
  return {.op = Op::kFlatten,
          .name = "flatten",
          .keeps_codes = true,
          .shape = shape,
          .reference = reference,
          .fast = fast};
}

}  // namespace steelyard::deploy
