// A transposed convolution: an image and a weight [O, C/groups, KH, KW].
#include <fmt/core.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/c/c_product.h"
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/linear_map.h"
#include "steelyard/export/ops/pool_fields.h"
#include "steelyard/export/ops/real_sum.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/tflite/tflite_nodes.h"
#include "steelyard/qat/layers/conv_transpose2d_product.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

const ConvTranspose2dGeometry& geometry_of(const Node& node) {
  return node.as<ConvTranspose2dGeometry>();
}

Tensor weight(const Node& node, const Tensor& parameter) {
  return qat::swapped_channels(parameter, geometry_of(node).conv.groups);
}

// The convolution of all phases (kernels/transposed_conv), which runtimes have in integers.
Node phases_of(const Node& node, const kernels::TransposedConv& conv) {
  const kernels::Conv2dShape shape = conv.convolution();
  const Weights& from = *node.weights;
  Node phases = node;
  phases.op = Op::kConv2d;
  phases.name = node.name + "/phases";
  phases.options = Conv2dGeometry{.stride = {1, 1},
                                  .padding = {shape.pad_h, shape.pad_w},
                                  .dilation = {shape.dilation_h, shape.dilation_w},
                                  .groups = shape.groups};
  Weights& weights = *phases.weights;
  weights.weight = Tensor::empty(
      {shape.out_channels, shape.in_channels_per_group(), shape.kernel_h, shape.kernel_w},
      DType::kI8);
  kernels::run(kernels::PhaseWeights<std::int8_t>{
      .n = weights.weight.size(),
      .channels = shape.in_channels_per_group(),
      .height = conv.height,
      .width = conv.width,
      .w = from.weight.data<std::int8_t>(),
      .zero_points = from.zero_points.empty() ? nullptr : from.zero_points.data(),
      .phases = weights.weight.data<std::int8_t>()});
  const auto repeat = [&](auto& to, const auto& values) {
    to.clear();
    for (const auto& value : values) {
      to.insert(to.end(), static_cast<std::size_t>(conv.phases()), value);
    }
  };
  repeat(weights.scales, from.scales);
  repeat(weights.zero_points, from.zero_points);
  if (from.bias.defined()) {
    std::vector<std::int32_t> bias;
    repeat(bias, from.bias.span<std::int32_t>());
    weights.bias = Tensor::from(bias, {shape.out_channels});
  }
  return phases;
}

// Integers: the convolution of all phases, whose pixels are then put side by side.
void integer_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const auto conv = transposed_conv(batched(nodes.graph().values[node.inputs[0]].shape),
                                    node.weights->weight.shape(), geometry_of(node));
  const auto& [h, w] = std::tie(conv.height, conv.width);
  const Shape whole{h.positions() * h.stride, w.positions() * w.stride};
  const bool apart = conv.phases() > 1, larger = whole != Shape{h.out, w.out};
  const Node phases = phases_of(node, conv);
  if (!apart && !larger) return conv2d_onnx(nodes, phases, output);
  std::string pixels = phases.name + "/real";
  conv2d_onnx(nodes, phases, pixels);
  if (nodes.graph().values[node.output].quantization && !has_real_sums(nodes, node)) {
    nodes.quantize_and_back(node, pixels, phases.name, phases.name + "/values");
    pixels = phases.name + "/values";
  }
  OnnxGraph& onnx = nodes.onnx();
  const auto numbers = [&](const std::string& name, const std::vector<std::int64_t>& values) {
    return onnx.int64s(phases.name + "/" + name, values, {std::ssize(values)});
  };
  if (apart && h.stride == w.stride) {  // of any size
    const std::string together = larger ? phases.name + "/together" : output;
    onnx.add("DepthToSpace", {pixels}, together,
             {{"blocksize", h.stride}, {"mode", std::string("CRD")}});
    pixels = together;
  } else if (apart) {
    const std::string each = phases.name + "/each", rows = phases.name + "/rows";
    const std::string together = larger ? phases.name + "/together" : output;
    onnx.add("Reshape",
             {pixels, numbers("each_shape", {0, conv.out_channels, h.stride, w.stride,
                                             h.positions(), w.positions()})},
             each);
    onnx.add("Transpose", {each}, rows, {{"perm", std::vector<std::int64_t>{0, 1, 4, 2, 5, 3}}});
    onnx.add("Reshape",
             {rows, numbers("together_shape", {0, conv.out_channels, whole[0], whole[1]})},
             together);
    pixels = together;
  }
  if (!larger) return;
  // Ends are counted from the end, so that the image may have any size.
  const auto end = [](const auto& side, std::int64_t all) {
    const std::int64_t after = all - side.first() - side.out;
    return after == 0 ? INT64_MAX : -after;
  };
  onnx.add("Slice",
           {pixels, numbers("first", {h.first(), w.first()}),
            numbers("end", {end(h, whole[0]), end(w, whole[1])}), numbers("axes", {2, 3})},
           output);
}

// Floats: ConvTranspose, whose weight is [C, O/groups, KH, KW].
void float_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const Conv2dGeometry& g = geometry_of(node).conv;
  const Shape w = node.weights->weight.shape();
  Node as_parameter = node;
  if (!node.weights->has_codes()) {
    as_parameter.weights->weight = qat::swapped_channels(node.weights->weight, g.groups);
  }
  std::vector<std::string> operands = linear_map_operands(nodes, as_parameter);
  if (node.weights->has_codes()) {
    OnnxGraph& onnx = nodes.onnx();
    const auto reshape = [&](const std::string& to, const Shape& shape) {
      const std::string sizes = onnx.int64s(to + "_shape", shape, {std::ssize(shape)});
      onnx.add("Reshape", {operands[1], sizes}, to);
      operands[1] = to;
    };
    const std::string name = node.name + "/parameter", outputs_last = name + "_groups_turned";
    reshape(name + "_groups", {g.groups, w[0] / g.groups, w[1], w[2], w[3]});
    onnx.add("Transpose", {operands[1]}, outputs_last,
             {{"perm", std::vector<std::int64_t>{0, 2, 1, 3, 4}}});
    operands[1] = outputs_last;
    reshape(name, {w[1] * g.groups, w[0] / g.groups, w[2], w[3]});
  }
  nodes.onnx().add("ConvTranspose", operands, output,
                   {{"kernel_shape", std::vector<std::int64_t>{w[2], w[3]}},
                    {"strides", pair(g.stride)},
                    {"pads", pads(g.padding)},
                    {"dilations", pair(g.dilation)},
                    {"output_padding", pair(geometry_of(node).output_padding)},
                    {"group", g.groups}});
}

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  node.weights->one_scale_per_channel() ? integer_onnx(nodes, node, output)
                                        : float_onnx(nodes, node, output);
}

// Whether TFLite's SAME means this: that of the convolution from the output back to the input.
bool is_same(const kernels::TransposedSide& side) {
  const std::int64_t windows = (side.out + side.stride - 1) / side.stride;
  const std::int64_t total = (windows - 1) * side.stride + side.kernel - side.out;
  return windows == side.in && std::max<std::int64_t>(total, 0) / 2 == side.padding;
}

// Other paddings than SAME and none are cut off.
void tflite(TfliteNodes& nodes, const Node& node) {
  constexpr std::int32_t kSame = 0, kValid = 1;  // of the schema
  const Weights& weights = *node.weights;
  const Shape& kernel = weights.weight.shape();
  const auto conv = transposed_conv(batched(nodes.graph().values[node.inputs[0]].shape), kernel,
                                    geometry_of(node));
  const auto& [h, w] = std::tie(conv.height, conv.width);
  const bool same = is_same(h) && is_same(w);
  const bool cut = !same && (h.padding > 0 || w.padding > 0);
  const auto size = [](std::int64_t n) { return static_cast<std::int32_t>(n); };
  std::vector<std::int32_t> shape = nodes.batch_shape(node.output);
  std::int32_t pixels = nodes.output(node);
  if (cut) {
    shape[1] += size(2 * h.padding);
    shape[2] += size(2 * w.padding);
    pixels = nodes.computed(node.name + "/uncut", shape, nodes.output_quantization(node));
  }
  std::vector<std::int32_t> inputs{
      nodes.int32s(node.name + "/shape", shape, {4}),
      tflite_weight(nodes, node, ordered_weights(weights.weight, false),
                    {size(kernel[0]), size(kernel[2]), size(kernel[3]), size(kernel[1])}, 0,
                    TfliteType::kInt8),
      nodes.input(node)};
  add_tflite_bias(nodes, node, inputs);
  nodes.add(TfliteOp::kTransposeConv, 4, inputs, pixels,
            {.table = 49,
             .fields = {{0, 1, same ? kSame : kValid},
                        {1, 4, size(w.stride)},
                        {2, 4, size(h.stride)},
                        {3, 1, tflite_activation(node.activation)}}});
  if (!cut) return;
  const std::vector<std::int32_t> first{0, size(h.padding), size(w.padding), 0};
  nodes.add(TfliteOp::kSlice, 2,
            {pixels, nodes.int32s(node.name + "/begin", first, {4}),
             nodes.int32s(node.name + "/size", nodes.batch_shape(node.output), {4})},
            nodes.output(node), {.table = 48});
}

void c(CNodes& nodes, const Node& node) {
  CProduct product{"transposed", ordered_weights(node.weights->weight, false)};
  product.plain_bias = true;
  product.fields = c_windows(nodes, node, geometry_of(node).conv);
  add_c_product(nodes, node, std::move(product));
}

std::string text(const Node& node) {
  const Shape& w = node.weights->weight.shape();
  return fmt::format(" {}x{}, stride {}, padding {}", w[2], w[3],
                     extent_text(geometry_of(node).conv.stride),
                     extent_text(geometry_of(node).conv.padding));
}

}  // namespace

OpForm conv_transpose2d_form() {
  return {.op = Op::kConvTranspose2d,
          .recorded = {"quantized_conv_transpose2d", "conv_transpose2d"},
          .weight = weight,
          .read = read_product<ConvTranspose2dGeometry>,
          .onnx = onnx,
          .onnx_order = OnnxOrder::kChannelsFirst,
          .tflite = tflite,
          .c = c,
          .text = text};
}

}  // namespace steelyard::deploy
