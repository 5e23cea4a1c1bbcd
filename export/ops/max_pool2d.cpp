// The largest value of each window: a code of its input.
#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/pool_fields.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/tflite/tflite_nodes.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard::deploy {
namespace {

void read(const Function& function, Node& node) {
  node.options = described<Pool2dGeometry>(function);
}

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  nodes.onnx().add("MaxPool", {nodes.input(node)}, output,
                   window_attributes(node.as<Pool2dGeometry>()));
}

void tflite(TfliteNodes& nodes, const Node& node) {
  add_tflite_pool(nodes, node, TfliteOp::kMaxPool2d, -128);  // less than any code, or as small
}

void c(CNodes& nodes, const Node& node) { add_c_pool(nodes, node, "max_pool"); }

}  // namespace

OpForm max_pool2d_form() {
  return {.op = Op::kMaxPool2d,
          .recorded = {"quantized_max_pool2d", "max_pool2d"},
          .in_c_header = true,
          .read = read,
          .onnx = onnx,
          .onnx_order = OnnxOrder::kChannelsFirst,
          .tflite = tflite,
          .c = c,
          .text = pool_text};
}

}  // namespace steelyard::deploy
