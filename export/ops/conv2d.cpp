// An image and a weight [O, C/groups, KH, KW].
#include <fmt/core.h>

#include "steelyard/export/ops/linear_map.h"
#include "steelyard/export/ops/pool_fields.h"
#include "steelyard/export/ops/real_sum.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/qat/forms/integer_product.h"

namespace steelyard::deploy {
namespace {

void read(const Function& function, Node& node) {
  const auto* integer = dynamic_cast<const qat::IntegerProductFunction*>(&function);
  if (integer == nullptr) {
    node.conv = described<Conv2dGeometry>(function);
  } else {
    node.activation = integer->activation();
    node.conv = described<Conv2dGeometry>(integer->product());
  }
}

Shape shape(const Graph& graph, const Node& node) {
  const auto s = conv2d_shape(batched(graph.values[node.inputs[0]].shape),
                              node.weights->weight.shape(), node.conv);
  return {s.out_h(), s.out_w(), s.out_channels};
}

void reference(const Operands& op) {
  const Shape& weight = op.node.weights->weight.shape();
  run_linear_map(op, windows_of(op, {weight[2], weight[3]}, op.node.conv));
}

bool fast(const Operands& op) { return run_linear_map(op, *qat::conv2d_product(op.node.conv)); }

}  // namespace

void conv2d_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const Tensor& weight = node.weights->weight;
  const Shape& kernel = weight.shape();
  const std::vector<OnnxAttribute> attributes{
      {"kernel_shape", std::vector<std::int64_t>{kernel[2], kernel[3]}},
      {"strides", pair(node.conv.stride)},
      {"pads", pads(node.conv.padding)},
      {"dilations", pair(node.conv.dilation)},
      {"group", node.conv.groups}};
  if (has_real_sums(nodes, node)) {
    const auto codes = weight.span<std::int8_t>();
    return add_real_products(nodes, node, "ConvInteger", {codes.begin(), codes.end()}, kernel,
                             attributes, output);
  }
  nodes.onnx().add("Conv", linear_map_operands(nodes, node), output, attributes);
}

namespace {

std::string text(const Node& node) {
  const Shape& w = node.weights->weight.shape();
  std::string text = fmt::format(" {}x{}, stride {}, padding {}", w[2], w[3],
                                 extent_text(node.conv.stride), extent_text(node.conv.padding));
  if (node.conv.dilation != std::array<std::int64_t, 2>{1, 1}) {
    text += ", dilation " + extent_text(node.conv.dilation);
  }
  if (node.conv.groups != 1) text += fmt::format(", groups {}", node.conv.groups);
  return text;
}

}  // namespace

OpInfo conv2d_op() {
  return {.op = Op::kConv2d,
          .name = "conv2d",
          .recorded = {"quantized_conv2d", "conv2d"},
          .has_weights = true,
          .fuses_activation = true,
          .fields = {{"stride", [](Node& node) { return &node.conv.stride; }},
                     {"padding", [](Node& node) { return &node.conv.padding; }},
                     {"dilation", [](Node& node) { return &node.conv.dilation; }},
                     {"groups", [](Node& node) { return &node.conv.groups; }}},
          .in_c_header = true,
          .read = read,
          .shape = shape,
          .check = check_weights,
          .reference = reference,
          .fast = fast,
          .onnx = conv2d_onnx,
          .onnx_order = OnnxOrder::kChannelsFirst,
          .text = text};
}

}  // namespace steelyard::deploy
