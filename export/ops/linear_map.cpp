// The weights of linear maps: their checks and their ONNX nodes.
#include "steelyard/export/ops/linear_map.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/tflite/tflite_nodes.h"

namespace steelyard::deploy {
namespace {

std::string weight(OnnxNodes& nodes, const Node& node) {
  OnnxGraph& onnx = nodes.onnx();
  const Weights& weights = *node.weights;
  const std::string name = node.name + "/weight";
  const Shape& shape = weights.weight.shape();
  if (!weights.has_codes()) return onnx.floats(name, weights.weight.span<float>(), shape);
  const auto count = static_cast<std::int64_t>(weights.scales.size());
  const bool groups = count != shape[0];
  Shape code_shape = shape;
  Shape scale_shape{count};
  if (groups) {
    // Rows, since ONNX's blocks lie on one axis: those of a convolution get their shape afterwards.
    code_shape = {shape[0], weights.weight.size() / shape[0]};
    scale_shape = {shape[0], count / shape[0]};
  }
  const std::string real_name = groups && shape.size() > 2 ? name + "_rows" : name;
  const OnnxType type =
      nodes.options().pack_int4 && weights.bits <= 4 ? OnnxType::kInt4 : OnnxType::kInt8;
  std::vector<std::int8_t> zero_points = weights.zero_points;
  zero_points.resize(weights.scales.size(), 0);
  std::vector<OnnxAttribute> attributes{{"axis", std::int64_t{groups ? 1 : 0}}};
  if (groups) attributes.push_back({"block_size", weights.group_size()});
  onnx.add("DequantizeLinear",
           {onnx.codes(name + "_codes", type, weights.weight.span<std::int8_t>(), code_shape),
            onnx.floats(name + "_scale", weights.scales, scale_shape),
            onnx.codes(name + "_zero_point", type, zero_points, scale_shape)},
           real_name, attributes);
  if (real_name != name) {
    onnx.add(
        "Reshape",
        {real_name, onnx.int64s(name + "_shape", shape, {static_cast<std::int64_t>(shape.size())})},
        name);
  }
  return name;
}

std::string bias(OnnxNodes& nodes, const Node& node) {
  OnnxGraph& onnx = nodes.onnx();
  const Weights& weights = *node.weights;
  const std::string name = node.name + "/bias";
  const Shape& shape = weights.bias.shape();
  if (!weights.one_scale_per_channel()) {
    return onnx.floats(name, weights.bias.span<float>(), shape);
  }
  const float in_scale = nodes.graph().values[node.inputs[0]].quantization->scale;
  std::vector<float> scales;
  for (const float scale : weights.scales) {
    scales.push_back(in_scale * scale);
    if (std::isnormal(scales.back())) continue;
    refuse_onnx(node,
                fmt::format("the scale of its bias, {:.3g} of the input times {:.3g} of weights, "
                            "is not a normal float (a learned scale falls so low where "
                            "quantize.algorithm.scale_lr is too high)",
                            in_scale, scale));
  }
  const std::vector<std::int32_t> zeros(scales.size(), 0);
  onnx.add("DequantizeLinear",
           {onnx.int32s(name + "_codes", weights.bias.span<std::int32_t>(), shape),
            onnx.floats(name + "_scale", scales, shape),
            onnx.int32s(name + "_zero_point", zeros, shape)},
           name, {{"axis", std::int64_t{0}}});
  return name;
}

}  // namespace

std::int32_t tflite_weight(TfliteNodes& nodes, const Node& node,
                           const std::vector<std::int8_t>& codes, std::vector<std::int32_t> shape,
                           std::int32_t axis, TfliteType type) {
  const std::vector<float>& scales = node.weights->scales;
  return nodes.codes(node.name + "/weight", codes, std::move(shape),
                     {scales, std::vector<std::int64_t>(scales.size(), 0), axis}, type);
}

void add_tflite_bias(TfliteNodes& nodes, const Node& node, std::vector<std::int32_t>& inputs) {
  const Weights& weights = *node.weights;
  const std::vector<std::int32_t> zeros(weights.scales.size(), 0);
  const std::span<const std::int32_t> bias =
      weights.bias.defined() ? std::span<const std::int32_t>(weights.bias.span<std::int32_t>())
                             : std::span<const std::int32_t>(zeros);
  TfliteQuantization q{{}, std::vector<std::int64_t>(weights.scales.size(), 0), 0};
  for (const float scale : weights.scales) {
    q.scales.push_back(nodes.input_quantization(node).scale * scale);
  }
  inputs.push_back(
      nodes.int32s(node.name + "/bias", bias, {static_cast<std::int32_t>(bias.size())}, q));
}

std::vector<std::string> linear_map_operands(OnnxNodes& nodes, const Node& node) {
  std::vector<std::string> inputs{nodes.input(node), weight(nodes, node)};
  if (node.weights->bias.defined()) inputs.push_back(bias(nodes, node));
  return inputs;
}

std::vector<std::int8_t> ordered_weights(const Tensor& weight, bool depthwise) {
  const std::int64_t outputs = weight.dim(0), channels = weight.dim(1);
  const std::int64_t taps = weight.dim(2) * weight.dim(3);
  std::vector<std::int8_t> codes(static_cast<std::size_t>(weight.size()));
  for (std::int64_t o = 0; o < outputs; ++o) {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t t = 0; t < taps; ++t) {
        const std::int64_t to = depthwise ? t * outputs + o : (o * taps + t) * channels + c;
        codes[static_cast<std::size_t>(to)] =
            weight.data<std::int8_t>()[(o * channels + c) * taps + t];
      }
    }
  }
  return codes;
}

}  // namespace steelyard::deploy
