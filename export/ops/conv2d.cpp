// An image and a weight [O, C/groups, KH, KW].
#include <fmt/core.h>

#include "steelyard/export/ops/linear_map.h"
#include "steelyard/export/ops/pool_fields.h"
#include "steelyard/export/ops/real_sum.h"
#include "steelyard/export/ops/rows.h"

namespace steelyard::deploy {
namespace {

Shape shape(const Graph& graph, const Node& node) {
  const auto s = conv2d_shape(batched(graph.values[node.inputs[0]].shape),
                              node.weights->weight.shape(), node.as<Conv2dGeometry>());
  return {s.out_h(), s.out_w(), s.out_channels};
}

void reference(const Operands& op) {
  const Shape& weight = op.node.weights->weight.shape();
  run_linear_map(op, windows_of(op, {weight[2], weight[3]}, op.node.as<Conv2dGeometry>()));
}

bool fast(const Operands& op) {
  return run_linear_map(op, *qat::conv2d_product(op.node.as<Conv2dGeometry>()));
}

}  // namespace

void conv2d_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const Tensor& weight = node.weights->weight;
  const Shape& kernel = weight.shape();
  const auto& conv = node.as<Conv2dGeometry>();
  const std::vector<OnnxAttribute> attributes{
      {"kernel_shape", std::vector<std::int64_t>{kernel[2], kernel[3]}},
      {"strides", pair(conv.stride)},
      {"pads", pads(conv.padding)},
      {"dilations", pair(conv.dilation)},
      {"group", conv.groups}};
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
  const auto& conv = node.as<Conv2dGeometry>();
  std::string text = fmt::format(" {}x{}, stride {}, padding {}", w[2], w[3],
                                 extent_text(conv.stride), extent_text(conv.padding));
  if (conv.dilation != std::array<std::int64_t, 2>{1, 1}) {
    text += ", dilation " + extent_text(conv.dilation);
  }
  if (conv.groups != 1) text += fmt::format(", groups {}", conv.groups);
  return text;
}

}  // namespace

OpInfo conv2d_op() {
  return {.op = Op::kConv2d,
          .name = "conv2d",
          .recorded = {"quantized_conv2d", "conv2d"},
          .has_weights = true,
          .fuses_activation = true,
          .options = Conv2dGeometry{},
          .in_c_header = true,
          .read = read_product<Conv2dGeometry>,
          .shape = shape,
          .check = check_weights,
          .reference = reference,
          .fast = fast,
          .onnx = conv2d_onnx,
          .onnx_order = OnnxOrder::kChannelsFirst,
          .text = text};
}

}  // namespace steelyard::deploy
