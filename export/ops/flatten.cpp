// An image [H, W, C] as a row of features [C*H*W], channel by channel.
#include "steelyard/export/c/c_move.h"
#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/tflite/tflite_nodes.h"

namespace steelyard::deploy {
namespace {

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  nodes.onnx().add("Flatten", {nodes.input(node)}, output, {{"axis", std::int64_t{1}}});
}

// Whether codes lie in another order than before, which nobody follows instead.
bool moves(const Graph& graph, const Node& node) {
  const Shape& in = graph.values[node.inputs[0]].shape;
  const bool has_order = in.size() == 3 && in[2] > 1 && in[0] * in[1] > 1;
  return has_order && tflite_flattened(graph, node.output) == nullptr;
}

// Channels come first, unless the weights that multiply them follow the pixels.
void tflite(TfliteNodes& nodes, const Node& node) {
  if (!moves(nodes.graph(), node)) {
    return add_tflite_reshape(nodes, node, nodes.input(node));
  }
  const std::vector<std::int32_t> shape = nodes.batch_shape(node.inputs[0]);
  const std::int32_t turned =
      nodes.computed(node.name + "/channels_first", {1, shape[3], shape[1], shape[2]},
                     nodes.input_quantization(node));
  const std::vector<std::int32_t> order{0, 3, 1, 2};
  nodes.add(TfliteOp::kTranspose, 2,
            {nodes.input(node), nodes.int32s(node.name + "/order", order, {4})}, turned,
            {.table = 26});
  add_tflite_reshape(nodes, node, turned);
}

void c(CNodes& nodes, const Node& node) {
  if (!moves(nodes.graph(), node)) return nodes.keep(node);
  const Shape& in = nodes.graph().values[node.inputs[0]].shape;
  add_c_move(nodes, node, node.inputs[0], {{in[2], 1, in[0] * in[1]}, {in[0] * in[1], in[2], 1}});
}

}  // namespace

OpForm flatten_form() {
  return {.op = Op::kFlatten,
          .recorded = {"quantized_flatten", "flatten"},
          .in_c_header = true,
          .onnx = onnx,
          .onnx_order = OnnxOrder::kChannelsFirst,
          .tflite = tflite,
          .c = c};
}

}  // namespace steelyard::deploy
