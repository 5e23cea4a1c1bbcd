// Convolutions and linear maps, and what is written as one.
#include <algorithm>
#include <cmath>

#include "steelyard/export/onnx_graph.h"

namespace steelyard::deploy {

void OnnxNodes::add_linear_map(const Node& node, const std::string& output) {
  std::vector<std::string> inputs{operand(node), weight(node)};
  if (node.weights->bias.defined()) inputs.push_back(bias(node));
  if (node.op == Op::kLinear) {
    const Shape& in = graph_.values[node.inputs[0]].shape;
    if (in.size() != 1) refuse_onnx(node, "expected a row of features, got " + shape_string(in));
    set_attribute(onnx_.add("Gemm", inputs, output), "transB", 1);
    return;
  }
  const Shape& kernel = node.weights->weight.shape();
  onnx::NodeProto& conv = onnx_.add("Conv", inputs, output);
  set_attribute(conv, "kernel_shape", std::array{kernel[2], kernel[3]});
  set_attribute(conv, "strides", node.conv.stride);
  set_attribute(conv, "pads", pads(node.conv.padding));
  set_attribute(conv, "dilations", node.conv.dilation);
  set_attribute(conv, "group", node.conv.groups);
}

// ONNX Runtime (1.20 and later, WeightBiasQuantization) quantizes float weights itself where one
// scale dequantizes the input. Equal scales along the channels give the same values and stop it.
std::string OnnxNodes::operand(const Node& node) {
  const Value& input = graph_.values[node.inputs[0]];
  if (node.weights->integer() || !input.quantization || options_.profile != qat::Profile::kOrt) {
    return tensor(node.inputs[0]);
  }
  const auto channels = static_cast<std::size_t>(input.shape.back());
  const std::vector<float> scales(channels, input.quantization->scale);
  const std::vector<std::int8_t> zero_points(channels, stored_zero_point(*input.quantization));
  const std::string name = node.name + "/input";
  const Shape shape{input.shape.back()};
  set_attribute(onnx_.add("DequantizeLinear",
                          {input.name + "/codes", onnx_.floats(name + "_scale", scales, shape),
                           onnx_.codes(name + "_zero_point", code_type(*input.quantization),
                                       zero_points, shape)},
                          name),
                "axis", 1);
  return name;
}

std::string OnnxNodes::weight(const Node& node) {
  const Weights& weights = *node.weights;
  const std::string name = node.name + "/weight";
  const Shape& shape = weights.weight.shape();
  if (!weights.has_codes()) return onnx_.floats(name, weights.weight.span<float>(), shape);
  const auto count = static_cast<std::int64_t>(weights.scales.size());
  const bool groups = count != shape[0];
  Shape code_shape = shape;
  Shape scale_shape{count};
  if (groups) {
    // Rows, since ONNX's blocks lie on one axis: those of a convolution get their shape behind.
    code_shape = {shape[0], weights.weight.size() / shape[0]};
    scale_shape = {shape[0], count / shape[0]};
  }
  const std::string real_name = groups && shape.size() > 2 ? name + "_rows" : name;
  const int type =
      options_.pack_int4 && weights.bits <= 4 ? kOnnxInt4 : int{onnx::TensorProto::INT8};
  std::vector<std::int8_t> zero_points = weights.zero_points;
  zero_points.resize(weights.scales.size(), 0);
  onnx::NodeProto& real =
      onnx_.add("DequantizeLinear",
                {onnx_.codes(name + "_codes", type, weights.weight.span<std::int8_t>(), code_shape),
                 onnx_.floats(name + "_scale", weights.scales, scale_shape),
                 onnx_.codes(name + "_zero_point", type, zero_points, scale_shape)},
                real_name);
  set_attribute(real, "axis", groups ? 1 : 0);
  if (groups) set_attribute(real, "block_size", weights.group_size());
  if (real_name != name) {
    onnx_.add("Reshape",
              {real_name,
               onnx_.int64s(name + "_shape", shape, {static_cast<std::int64_t>(shape.size())})},
              name);
  }
  return name;
}

std::string OnnxNodes::bias(const Node& node) {
  const Weights& weights = *node.weights;
  const std::string name = node.name + "/bias";
  const Shape& shape = weights.bias.shape();
  if (!weights.integer()) return onnx_.floats(name, weights.bias.span<float>(), shape);
  const float in_scale = graph_.values[node.inputs[0]].quantization->scale;
  std::vector<float> scales;
  for (const float scale : weights.scales) scales.push_back(in_scale * scale);
  if (!std::all_of(scales.begin(), scales.end(), [](float s) { return std::isnormal(s); })) {
    refuse_onnx(node, "a scale of its bias is no normal float");
  }
  const std::vector<std::int32_t> zeros(scales.size(), 0);
  onnx::NodeProto& real =
      onnx_.add("DequantizeLinear",
                {onnx_.int32s(name + "_codes", weights.bias.span<std::int32_t>(), shape),
                 onnx_.floats(name + "_scale", scales, shape),
                 onnx_.int32s(name + "_zero_point", zeros, shape)},
                name);
  set_attribute(real, "axis", 0);
  return name;
}

// Weights of code 1 and scale average_weight_scale(count) on every tap.
void OnnxNodes::add_average_of_codes(const Node& node, const std::string& output) {
  const auto [height, width] = node.pool.kernel;
  const std::int64_t channels = graph_.values[node.output].shape.back();
  const float scale = kernels::average_weight_scale(height * width);
  const std::string name = node.name + "/weight";
  const std::vector<std::int8_t> ones(static_cast<std::size_t>(channels * height * width), 1);
  const std::int8_t zero = 0;
  onnx_.add(
      "DequantizeLinear",
      {onnx_.codes(name + "_codes", onnx::TensorProto::INT8, ones, {channels, 1, height, width}),
       onnx_.floats(name + "_scale", {&scale, 1}, {}),
       onnx_.codes(name + "_zero_point", onnx::TensorProto::INT8, {&zero, 1}, {})},
      name);
  onnx::NodeProto& conv = onnx_.add("Conv", {tensor(node.inputs[0]), name}, output);
  set_window(conv, node.pool);
  set_attribute(conv, "group", channels);
}

}  // namespace steelyard::deploy
