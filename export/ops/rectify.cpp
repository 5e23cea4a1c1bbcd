// ReLU and ReLU6 as operations of their own: codes of the input, clamped.
#include <algorithm>
#include <cmath>

#include "steelyard/export/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/ops/support.h"

namespace steelyard::deploy {
namespace {

Shape shape(const Graph& graph, const Node& node) { return graph.values[node.inputs[0]].shape; }

void activate(const Operands& op, kernels::Activation activation) {
  const Tensor& x = op.input(0);
  if (const auto& q = op.output_value().quantization) {
    const kernels::CodeRange left =
        kernels::activation_code_range(activation, q->range, q->scale, q->zero_point);
    fill_codes(op.output(),
               [&](std::int64_t i) { return std::clamp(code_at(x, i), left.qmin, left.qmax); });
    return;
  }
  const float top = activation == kernels::Activation::kRelu6 ? 6.0F : INFINITY;
  fill_floats(op.output(), [&](std::int64_t i) {
    return kernels::clamp_keeping_nan(x.data<float>()[i], 0.0F, top);
  });
}

void relu_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  nodes.onnx().add("Relu", {nodes.input(node)}, output);
}

void relu6_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const float ends[] = {0.0F, 6.0F};
  nodes.onnx().add("Clip",
                   {nodes.input(node), nodes.onnx().floats(output + "/min", {ends, 1}, {}),
                    nodes.onnx().floats(output + "/max", {ends + 1, 1}, {})},
                   output);
}

}  // namespace

OpInfo relu_op() {
  return {.op = Op::kRelu,
          .name = "relu",
          .recorded = {"quantized_relu", "relu"},
          .keeps_codes = true,
          .shape = shape,
          .reference = [](const Operands& op) { activate(op, kernels::Activation::kRelu); },
          .onnx = relu_onnx};
}

OpInfo relu6_op() {
  return {.op = Op::kRelu6,
          .name = "relu6",
          .recorded = {"quantized_relu6", "relu6"},
          .keeps_codes = true,
          .shape = shape,
          .reference = [](const Operands& op) { activate(op, kernels::Activation::kRelu6); },
          .onnx = relu6_onnx};
}

}  // namespace steelyard::deploy
