// ReLU and ReLU6 as operations of their own: codes of the input, clamped. Clamps of floats.
#include <algorithm>
#include <cmath>
#include <limits>

#include "steelyard/export/onnx_nodes.h"
#include "steelyard/export/ops/c_product.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/ops/support.h"
#include "steelyard/export/tflite_nodes.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard::deploy {
namespace {

Shape shape(const Graph& graph, const Node& node) { return graph.values[node.inputs[0]].shape; }

void activate(const Operands& op, kernels::Activation activation) {
  if (const auto& q = op.output_value().quantization) {
    const kernels::CodeRange left =
        kernels::activation_code_range(activation, q->range, q->scale, q->zero_point, q->rounding);
    fill_codes(op.output(), [&](std::int64_t i) {
      return std::clamp(code_at(op.input(0), i), left.qmin, left.qmax);
    });
    return;
  }
  const Tensor x = real_operand(op, 0);
  const float top = activation == kernels::Activation::kRelu6 ? 6.0F : INFINITY;
  fill_floats(op.output(), [&](std::int64_t i) {
    return kernels::clamp_keeping_nan(x.data<float>()[i], 0.0F, top);
  });
}

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

void check_floats(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization, node, "is computed in float");
}

// Ends beyond every f32 stand for none: files hold finite numbers.
void read_bounds(const Function& function, Node& node) {
  constexpr double kMost = std::numeric_limits<double>::max();
  const auto [lo, hi] = described<Bounds>(function);
  node.options = Bounds{std::clamp(lo, -kMost, kMost), std::clamp(hi, -kMost, kMost)};
}

void check_bounds(const Graph& graph, const Node& node) {
  check_floats(graph, node);
  expect(node.as<Bounds>().lo <= node.as<Bounds>().hi, node, "expected bounds in order");
}

void clamp_floats(const Operands& op) {
  const Tensor x = real_operand(op, 0);
  const auto lo = static_cast<float>(op.node.as<Bounds>().lo),
             hi = static_cast<float>(op.node.as<Bounds>().hi);
  fill_floats(op.output(), [&](std::int64_t i) {
    return kernels::clamp_keeping_nan(x.data<float>()[i], lo, hi);
  });
}

}  // namespace

OpInfo relu_op() {
  return {.op = Op::kRelu,
          .name = "relu",
          .recorded = {"quantized_relu", "relu"},
          .keeps_codes = true,
          .in_c_header = true,
          .shape = shape,
          .reference = [](const Operands& op) { activate(op, kernels::Activation::kRelu); },
          .onnx = relu_onnx,
          .tflite =
              [](TfliteNodes& nodes, const Node& node) {
                nodes.add(TfliteOp::kRelu, 2, {nodes.input(node)}, nodes.output(node));
              },
          .c = [](CNodes& nodes,
                  const Node& node) { add_clamp(nodes, node, kernels::Activation::kRelu); }};
}

OpInfo clamp_op() {
  return {.op = Op::kClamp,
          .name = "clamp",
          .recorded = {"clamp"},
          .options = Bounds{},
          .graph_version = 5,
          .read = read_bounds,
          .shape = shape,
          .check = check_bounds,
          .reference = clamp_floats,
          .onnx = [](OnnxNodes& nodes, const Node& node, const std::string& output) {
            add_clip(nodes, node, static_cast<float>(node.as<Bounds>().lo),
                     static_cast<float>(node.as<Bounds>().hi), output);
          }};
}

OpInfo relu6_op() {
  return {.op = Op::kRelu6,
          .name = "relu6",
          .recorded = {"quantized_relu6", "relu6"},
          .keeps_codes = true,
          .in_c_header = true,
          .shape = shape,
          .reference = [](const Operands& op) { activate(op, kernels::Activation::kRelu6); },
          .onnx = relu6_onnx};
}

}  // namespace steelyard::deploy
