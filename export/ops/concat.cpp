// Joins values along a dimension, the last one for codes; their other dimensions are equal.
#include "steelyard/runtime/ops/concat.h"
#include "steelyard/export/c/c_move.h"
#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/fixed_activations.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/tflite/tflite_nodes.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard::deploy {
namespace {

const Describes<std::int64_t>* float_join(const Function& function) {
  return dynamic_cast<const Describes<std::int64_t>*>(&function);
}

std::string refusal(const Function& function) {
  const auto* join = float_join(function);
  return join != nullptr && join->described() == 0 ? "over the batch" : "";
}

void read(const Function& function, Node& node) {
  const auto* join = float_join(function);
  const std::int64_t rank = std::ssize(function.inputs()[0]->shape);
  if (join != nullptr && join->described() + 1 < rank) {
    node.options = JoinedAxis{join->described() - 1};
  }
}

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) parts.push_back(nodes.input(node, i));
  const std::int64_t axis = nodes.axis(node, axis_of(nodes.graph(), node));
  nodes.onnx().add("Concat", parts, output, {{"axis", axis}});
}

void tflite(TfliteNodes& nodes, const Node& node) {
  const Quantization& q = *nodes.graph().values[node.output].quantization;
  std::vector<std::int32_t> parts;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    parts.push_back(nodes.input(node, i));
    if (nodes.input_quantization(node, i) == q) continue;
    const std::int32_t rescaled = nodes.computed(node.name + "/part" + std::to_string(i),
                                                 nodes.batch_shape(node.inputs[i]), q);
    nodes.add(TfliteOp::kQuantize, 2, {parts.back()}, rescaled, {.table = 89});
    parts.back() = rescaled;
  }
  const auto axis = static_cast<std::int32_t>(axis_of(nodes.graph(), node)) + 1;
  nodes.add(TfliteOp::kConcatenation, 2, parts, nodes.output(node),
            {.table = 10, .fields = {{0, 4, axis}}});
}

void c(CNodes& nodes, const Node& node) {
  const Graph& graph = nodes.graph();
  const std::size_t axis = axis_of(graph, node);
  const std::int64_t whole = row_size(graph.values[node.output].shape, axis);
  const Quantization& q = nodes.output_quantization(node);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const Shape& part = graph.values[node.inputs[i]].shape;
    const std::int64_t width = row_size(part, axis), rows = shape_size(part) / width;
    add_c_move(nodes, node, node.inputs[i], {{rows, width, whole}, {width, 1, 1}}, 0, first);
    if (nodes.input_quantization(node, i) != q) {
      add_c_map(nodes, node, node.output, code_table(nodes.input_quantization(node, i), q),
                {rows, width, whole, first});
    }
    first += width;
  }
}

}  // namespace

OpForm concat_form() {
  return {.op = Op::kConcat,
          .recorded = {"quantized_concat", "concat"},
          .in_c_header = true,
          .refusal = refusal,
          .read = read,
          .onnx = onnx,
          .tflite = tflite,
          .c = c};
}

}  // namespace steelyard::deploy
