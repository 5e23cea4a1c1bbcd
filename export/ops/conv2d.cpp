// An image and a weight [O, C/groups, KH, KW].
#include <fmt/core.h>

#include <utility>

#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/c/c_product.h"
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/linear_map.h"
#include "steelyard/export/ops/pool_fields.h"
#include "steelyard/export/ops/real_sum.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/tflite/tflite_nodes.h"

namespace steelyard::deploy {

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

// Whether each channel has outputs of its own.
bool is_depthwise(const Node& node) {
  return node.as<Conv2dGeometry>().groups > 1 && node.weights->weight.dim(1) == 1;
}

void tflite(TfliteNodes& nodes, const Node& node) {
  const Weights& weights = *node.weights;
  const Shape& shape = weights.weight.shape();
  const auto& conv = node.as<Conv2dGeometry>();
  const auto size = [](std::int64_t n) { return static_cast<std::int32_t>(n); };
  const bool depthwise = is_depthwise(node);
  const TfliteNodes::Padded image =
      nodes.padded(node,
                   {.kernel = {shape[2], shape[3]},
                    .stride = conv.stride,
                    .padding = conv.padding,
                    .dilation = conv.dilation},
                   static_cast<std::int8_t>(nodes.input_quantization(node).zero_point));
  const std::vector<std::int32_t> filter =
      depthwise ? std::vector<std::int32_t>{1, size(shape[2]), size(shape[3]), size(shape[0])}
                : std::vector<std::int32_t>{size(shape[0]), size(shape[2]), size(shape[3]),
                                            size(shape[1])};
  const TfliteType type = nodes.weight_type(weights);
  std::vector<std::int32_t> inputs{
      image.input, tflite_weight(nodes, node, ordered_weights(weights.weight, depthwise), filter,
                                 depthwise ? 3 : 0, type)};
  add_tflite_bias(nodes, node, inputs);
  const std::int32_t activation = tflite_activation(node.activation);
  const std::int32_t stride_h = size(conv.stride[0]), stride_w = size(conv.stride[1]);
  const std::int32_t dilation_h = size(conv.dilation[0]), dilation_w = size(conv.dilation[1]);
  // The first with weights of 4 bits is 7; LiteRT's reference kernels, which have them too, end at
  // 6 for depthwise convolutions.
  const std::int32_t version = type == TfliteType::kInt8 ? 3 : depthwise ? 6 : 7;
  // The dilations' default is 1, which a field of the value 0 would not be.
  if (depthwise) {
    nodes.add(TfliteOp::kDepthwiseConv2d, version, inputs, nodes.output(node),
              {.table = 2,
               .fields = {{0, 1, image.padding},
                          {1, 4, stride_w},
                          {2, 4, stride_h},
                          {3, 4, size(conv.groups == 0 ? 1 : shape[0] / conv.groups)},
                          {4, 1, activation},
                          {5, 4, dilation_w},
                          {6, 4, dilation_h}}});
    return;
  }
  nodes.add(TfliteOp::kConv2d, version, inputs, nodes.output(node),
            {.table = 1,
             .fields = {{0, 1, image.padding},
                        {1, 4, stride_w},
                        {2, 4, stride_h},
                        {3, 1, activation},
                        {4, 4, dilation_w},
                        {5, 4, dilation_h}}});
}

void c(CNodes& nodes, const Node& node) {
  const bool depthwise = is_depthwise(node);
  CProduct product{depthwise ? "depthwise" : "conv", ordered_weights(node.weights->weight, false)};
  product.plain_bias = depthwise;
  product.fields = c_windows(nodes, node, node.as<Conv2dGeometry>());
  add_c_product(nodes, node, std::move(product));
}

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

OpForm conv2d_form() {
  return {.op = Op::kConv2d,
          .recorded = {"quantized_conv2d", "conv2d"},
          .in_c_header = true,
          .read = read_product<Conv2dGeometry>,
          .onnx = conv2d_onnx,
          .onnx_order = OnnxOrder::kChannelsFirst,
          .tflite = tflite,
          .c = c,
          .text = text};
}

}  // namespace steelyard::deploy
