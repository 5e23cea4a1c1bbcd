// Several outputs of the model: their values one after another, which are the outputs of an ONNX
// file.
#include "steelyard/runtime/ops/rows.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

Shape shape(const Graph& graph, const Node& node) {
  std::int64_t values = 0;
  for (const std::size_t input : node.inputs) values += shape_size(graph.values[input].shape);
  return {values};
}

void check(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization, node, "gives floats");
  expect(node.output == graph.output && &node == &graph.nodes.back(), node,
         "gives the model's outputs, expected nothing after it");
}

void reference(const Operands& op) {
  const std::int64_t whole = shape_size(op.output_value().shape);
  std::int64_t first = 0;
  for (std::size_t part = 0; part < op.node.inputs.size(); ++part) {
    const Tensor real = dequantized(op.input_value(part), op.input(part));
    const std::int64_t width = shape_size(op.input_value(part).shape);
    float* y = op.output().data<float>() + first;
    for (std::int64_t i = 0; i < real.size(); ++i) {
      y[i / width * whole + i % width] = real.data<float>()[i];
    }
    first += width;
  }
}

}  // namespace

OpInfo output_parts_op() {
  return {.op = Op::kOutputParts,
          .name = "output_parts",
          .inputs = 0,
          .graph_version = 12,
          .shape = shape,
          .check = check,
          .reference = reference};
}

}  // namespace steelyard::deploy
