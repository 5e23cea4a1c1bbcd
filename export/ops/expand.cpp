// Elements that are repeated along dimensions of size 1.
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard::deploy {
namespace {

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

OpForm expand_form() {
  return {.op = Op::kExpand,
          .recorded = {"expand"},
          .refusal = refusal,
          .read = read,
          .onnx = onnx,
          .onnx_order = OnnxOrder::kAsHere};
}

}  // namespace steelyard::deploy
