// ReLU and ReLU6 as operations of their own: codes of the input, clamped. Clamps of floats.
#include <algorithm>
#include <limits>

#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/c/c_product.h"
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/tflite/tflite_nodes.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard::deploy {
namespace {

void add_clamp(CNodes& nodes, const Node& node, kernels::Activation activation) {
  CFields fields;
  fields.set("count", shape_size(nodes.graph().values[node.output].shape));
  set_c_range(fields, nodes.output_quantization(node), activation);
  nodes.reuse(node);
  nodes.call("clamp", "clamp_node", node, fields);
}

void relu_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  nodes.onnx().add("Relu", {nodes.input(node)}, output);
}

void add_clip(OnnxNodes& nodes, const Node& node, float lo, float hi, const std::string& output) {
  nodes.onnx().add("Clip",
                   {nodes.input(node), nodes.onnx().floats(output + "/min", {&lo, 1}, {}),
                    nodes.onnx().floats(output + "/max", {&hi, 1}, {})},
                   output);
}

void relu6_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  add_clip(nodes, node, 0, 6, output);
}

// Ends beyond every f32 stand for none: files hold finite numbers.
void read_bounds(const Function& function, Node& node) {
  constexpr double kMost = std::numeric_limits<double>::max();
  const auto [lo, hi] = described<Bounds>(function);
  node.options = Bounds{std::clamp(lo, -kMost, kMost), std::clamp(hi, -kMost, kMost)};
}

}  // namespace

OpForm relu_form() {
  return {.op = Op::kRelu,
          .recorded = {"quantized_relu", "relu"},
          .in_c_header = true,
          .onnx = relu_onnx,
          .tflite =
              [](TfliteNodes& nodes, const Node& node) {
                nodes.add(TfliteOp::kRelu, 2, {nodes.input(node)}, nodes.output(node));
              },
          .c = [](CNodes& nodes,
                  const Node& node) { add_clamp(nodes, node, kernels::Activation::kRelu); }};
}

OpForm clamp_form() {
  return {.op = Op::kClamp,
          .recorded = {"clamp"},
          .read = read_bounds,
          .onnx = [](OnnxNodes& nodes, const Node& node, const std::string& output) {
            add_clip(nodes, node, static_cast<float>(node.as<Bounds>().lo),
                     static_cast<float>(node.as<Bounds>().hi), output);
          }};
}

OpForm relu6_form() {
  return {.op = Op::kRelu6,
          .recorded = {"quantized_relu6", "relu6"},
          .in_c_header = true,
          .onnx = relu6_onnx};
}

}  // namespace steelyard::deploy
