// Softmax and its logarithm along the last dimension: channels of images, features of rows.
#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/tflite/tflite_nodes.h"
#include "steelyard/kernels/fixed_functions.h"

namespace steelyard::deploy {
namespace {

void tflite(TfliteNodes& nodes, const Node& node) {
  constexpr std::int32_t kOne = 0x3f800000;  // beta, as the bits of a float
  nodes.add(TfliteOp::kSoftmax, 2, {nodes.input(node)}, nodes.output(node),
            {.table = 9, .fields = {{0, 4, kOne}}});
}

void c(CNodes& nodes, const Node& node) {
  const Shape& shape = nodes.graph().values[node.output].shape;
  const kernels::FixedInput input = kernels::make_fixed_softmax(
      nodes.input_quantization(node).scale, nodes.output_quantization(node).rounding);
  CFields fields;
  fields.set("rows", shape_size(shape) / shape.back()).set("columns", shape.back());
  fields.set("multiplier", input.by.multiplier).set("shift", input.by.shift);
  fields.set("radius", input.radius);
  nodes.call("softmax", "softmax_node", node, fields);
}

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const Shape& shape = nodes.graph().values[node.output].shape;
  // ONNX Runtime's Softmax of codes gives 0 for rows of one value.
  const std::string x = shape.back() == 1 ? nodes.input_of_floats(node) : nodes.input(node);
  nodes.onnx().add("Softmax", {x}, output, {{"axis", nodes.axis(node, shape.size() - 1)}});
}

void onnx_log(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const std::size_t rank = nodes.graph().values[node.output].shape.size();
  nodes.onnx().add("LogSoftmax", {nodes.input(node)}, output,
                   {{"axis", nodes.axis(node, rank - 1)}});
}

}  // namespace

OpForm softmax_form() {
  return {.op = Op::kSoftmax,
          .recorded = {"quantized_softmax", "softmax"},
          .in_c_header = true,
          .onnx = onnx,
          .tflite = tflite,
          .c = c};
}

OpForm log_softmax_form() {
  return {.op = Op::kLogSoftmax, .recorded = {"log_softmax"}, .onnx = onnx_log};
}

}  // namespace steelyard::deploy
