// Elements that are repeated along dimensions of size 1.
#include "steelyard/export/onnx_nodes.h"
#include "steelyard/export/ops/arithmetic.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/framework/tensor/describes.h"

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

std::string refusal(const Function& function) {
  const Shape& from = function.inputs()[0]->shape;
  const Shape to = described<Shape>(function);
  return to.size() == from.size() && to[0] == from[0] ? "" : "of the batch";
}

void read(const Function& function, Node& node) {
  const Shape to = described<Shape>(function);
  node.options = NewShape{{to.begin() + 1, to.end()}};
}

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  Shape to = node.as<NewShape>().shape;
  to.insert(to.begin(), 1);  // which leaves the batch as it is
  nodes.onnx().add(
      "Expand",
      {nodes.input(node), nodes.onnx().int64s(node.name + "/shape", to, {std::ssize(to)})}, output);
}

}  // namespace

OpInfo expand_op() {
  return {.op = Op::kExpand,
          .name = "expand",
          .recorded = {"expand"},
          .options = NewShape{},
          .graph_version = 5,
          .refusal = refusal,
          .read = read,
          .shape = shape,
          .check = check,
          .reference = reference,
          .onnx = onnx,
          .onnx_order = OnnxOrder::kAsHere};
}

}  // namespace steelyard::deploy
