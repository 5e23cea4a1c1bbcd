// An image [H, W, C] as a row of features [C*H*W], channel by channel.
#include "steelyard/export/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/ops/support.h"

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
  const std::int64_t size = pixels * channels;
  const auto source = [&](std::int64_t i) {
    const std::int64_t c = i % size / pixels;
    return i / size * size + i % pixels * channels + c;
  };
  const Tensor& x = op.input(0);
  if (op.output_value().quantization) {
    fill_codes(op.output(), [&](std::int64_t i) { return code_at(x, source(i)); });
  } else {
    fill_floats(op.output(), [&](std::int64_t i) { return x.data<float>()[source(i)]; });
  }
}

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  nodes.onnx().add("Flatten", {nodes.input(node)}, output, {{"axis", std::int64_t{1}}});
}

}  // namespace

OpInfo flatten_op() {
  return {.op = Op::kFlatten,
          .name = "flatten",
          .recorded = {"quantized_flatten", "flatten"},
          .keeps_codes = true,
          .shape = shape,
          .reference = reference,
          .onnx = onnx};
}

}  // namespace steelyard::deploy
