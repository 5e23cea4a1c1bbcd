#include <algorithm>
#include <cmath>

#include "export/onnx_graph.h"
#include "framework/error.h"

namespace steelyard::deploy {
namespace {

using kernels::Activation;
using kernels::CodeRange;

// Code 1 on every tap: with the scale average_weight_scale(count), an average.
constexpr std::int8_t kOne = 1;

CodeRange range_of(DType dtype) {
  return dtype == DType::kI8 ? CodeRange{-128, 127} : CodeRange{0, 255};
}

// {top, left, bottom, right}.
std::vector<std::int64_t> pads(const std::array<std::int64_t, 2>& padding) {
  return {padding[0], padding[1], padding[0], padding[1]};
}

std::vector<std::int64_t> list(const std::array<std::int64_t, 2>& pair) {
  return {pair[0], pair[1]};
}

void set_window(onnx::NodeProto& node, const Pool2dGeometry& pool) {
  set_attribute(node, "kernel_shape", list(pool.kernel));
  set_attribute(node, "strides", list(pool.stride));
  set_attribute(node, "pads", pads(pool.padding));
}

[[noreturn]] void refuse(const Node& node, const std::string& why) {
  throw InputError("export: " + node.name + " (" + op_name(node.op) + ") has no ONNX form: " + why);
}

// The output's codes are codes of the input: no rounding, nothing to clamp.
bool keeps_codes(Op op) {
  return op == Op::kRelu || op == Op::kRelu6 || op == Op::kMaxPool2d || op == Op::kFlatten;
}

}  // namespace

OnnxNodes::OnnxNodes(const Graph& graph, const OnnxOptions& options, onnx::GraphProto& proto)
    : graph_(graph), options_(options), onnx_(proto) {}

std::string OnnxNodes::tensor(std::size_t value) const {
  if (value == graph_.input) return "input";
  if (value == graph_.output) return "output";
  return graph_.values[value].name + "/values";
}

void OnnxNodes::add_all() {
  for (const Node& node : graph_.nodes) add(node);
}

void OnnxNodes::add(const Node& node) {
  const std::string real = node.name + "/real";
  if (graph_.values[node.output].quantization) {
    if (node.op == Op::kQuantize) {
      quantize(node, tensor(node.inputs[0]));
    } else {
      add_operation(node, real);
      quantize(node, real);
    }
  } else if (node.activation != Activation::kNone) {
    add_operation(node, real);
    add_activation(node.activation, real, tensor(node.output));
  } else {
    add_operation(node, tensor(node.output));
  }
}

void OnnxNodes::add_operation(const Node& node, const std::string& output) {
  const std::string input = tensor(node.inputs[0]);
  switch (node.op) {
    case Op::kLinear:
    case Op::kConv2d:
      return add_linear_map(node, output);
    case Op::kAdd:
      onnx_.add("Add", {input, tensor(node.inputs[1])}, output);
      return;
    case Op::kRelu:
      return add_activation(Activation::kRelu, input, output);
    case Op::kRelu6:
      return add_activation(Activation::kRelu6, input, output);
    case Op::kMaxPool2d:
    case Op::kAvgPool2d:
    case Op::kGlobalAvgPool:
      return add_pool(node, output);
    case Op::kFlatten:
      set_attribute(onnx_.add("Flatten", {input}, output), "axis", 1);
      return;
    case Op::kQuantize:
      break;
  }
  refuse(node, "unknown operation");
}

void OnnxNodes::add_activation(Activation activation, const std::string& input,
                               const std::string& output) {
  if (activation == Activation::kRelu) {
    onnx_.add("Relu", {input}, output);
    return;
  }
  const float ends[] = {0.0F, 6.0F};
  onnx_.add("Clip",
            {input, onnx_.floats(output + "/min", {ends, 1}, {}),
             onnx_.floats(output + "/max", {ends + 1, 1}, {})},
            output);
}

void OnnxNodes::add_linear_map(const Node& node, const std::string& output) {
  std::vector<std::string> inputs{tensor(node.inputs[0]), weight(node)};
  if (node.weights->bias.defined()) inputs.push_back(bias(node));
  if (node.op == Op::kLinear) {
    const Shape& in = graph_.values[node.inputs[0]].shape;
    if (in.size() != 1) refuse(node, "expected a row of features, got " + shape_string(in));
    set_attribute(onnx_.add("Gemm", inputs, output), "transB", 1);
    return;
  }
  const Shape& kernel = node.weights->weight.shape();
  onnx::NodeProto& conv = onnx_.add("Conv", inputs, output);
  set_attribute(conv, "kernel_shape", std::vector<std::int64_t>{kernel[2], kernel[3]});
  set_attribute(conv, "strides", list(node.conv.stride));
  set_attribute(conv, "pads", pads(node.conv.padding));
  set_attribute(conv, "dilations", list(node.conv.dilation));
  set_attribute(conv, "group", node.conv.groups);
}

std::string OnnxNodes::weight(const Node& node) {
  const Weights& weights = *node.weights;
  const std::string name = node.name + "/weight";
  const Shape& shape = weights.weight.shape();
  if (!weights.integer()) return onnx_.floats(name, weights.weight.span<float>(), shape);
  const int type =
      options_.pack_int4 && weights.bits <= 4 ? kOnnxInt4 : int{onnx::TensorProto::INT8};
  const std::vector<std::int8_t> zeros(weights.scales.size(), 0);
  onnx::NodeProto& real =
      onnx_.add("DequantizeLinear",
                {onnx_.codes(name + "_codes", type, weights.weight.span<std::int8_t>(), shape),
                 onnx_.floats(name + "_scale", weights.scales, {shape[0]}),
                 onnx_.codes(name + "_zero_point", type, zeros, {shape[0]})},
                name);
  set_attribute(real, "axis", 0);
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
    refuse(node, "a scale of its bias is no normal float");
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

void OnnxNodes::add_pool(const Node& node, const std::string& output) {
  const std::string input = tensor(node.inputs[0]);
  const bool codes = graph_.values[node.output].quantization.has_value();
  if (node.op == Op::kMaxPool2d) {
    set_window(onnx_.add("MaxPool", {input}, output), node.pool);
  } else if (node.op == Op::kAvgPool2d && codes) {
    add_average_of_codes(node, output);
  } else if (node.op == Op::kAvgPool2d) {
    onnx::NodeProto& pool = onnx_.add("AveragePool", {input}, output);
    set_window(pool, node.pool);
    set_attribute(pool, "count_include_pad", 1);
  } else {
    const std::string image = node.name + "/image";  // [N, C, 1, 1]
    onnx_.add("GlobalAveragePool", {input}, image);
    std::string flat = image;
    if (codes) {
      flat = image + "/values";
      quantize_and_back(node, image, image, flat);
    }
    set_attribute(onnx_.add("Flatten", {flat}, output), "axis", 1);
  }
}

void OnnxNodes::add_average_of_codes(const Node& node, const std::string& output) {
  const auto [height, width] = node.pool.kernel;
  const std::int64_t channels = graph_.values[node.output].shape.back();
  const float scale = kernels::average_weight_scale(height * width);
  const std::string name = node.name + "/weight";
  const std::vector<std::int8_t> ones(static_cast<std::size_t>(channels * height * width), kOne);
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

// QuantizeLinear saturates at the ends of its type. Where fewer codes are left, by a narrower range
// or an activation whose zero is no end, the codes are clipped as values: their codes are exact,
// and the operation before still fuses.
void OnnxNodes::quantize(const Node& node, const std::string& real) {
  const Quantization& q = *graph_.values[node.output].quantization;
  const CodeRange left =
      kernels::activation_code_range(node.activation, q.range, q.scale, q.zero_point);
  const std::string output = tensor(node.output);
  if (keeps_codes(node.op) || left == range_of(q.dtype)) {
    quantize_and_back(node, real, node.name, output);
    return;
  }
  std::string whole = real;
  if (node.op != Op::kQuantize) {
    whole = node.name + "/unclipped/values";
    quantize_and_back(node, real, node.name + "/unclipped", whole);
  }
  const std::string clipped = node.name + "/clipped";
  clip(node, left, whole, clipped);
  quantize_and_back(node, clipped, node.name, output);
}

void OnnxNodes::quantize_and_back(const Node& node, const std::string& real,
                                  const std::string& prefix, const std::string& output) {
  const Quantization& q = *graph_.values[node.output].quantization;
  const bool is_signed = q.dtype == DType::kI8;
  const bool shifted = is_signed && options_.profile == qat::Profile::kOrt;
  const auto zero_point = static_cast<std::int8_t>(q.zero_point + (shifted ? 128 : 0));
  const int type = is_signed && !shifted ? onnx::TensorProto::INT8 : onnx::TensorProto::UINT8;
  const std::string scale_name = onnx_.floats(prefix + "/scale", {&q.scale, 1}, {});
  const std::string zero_name = onnx_.codes(prefix + "/zero_point", type, {&zero_point, 1}, {});
  const std::string codes = prefix + "/codes";
  onnx_.add("QuantizeLinear", {real, scale_name, zero_name}, codes);
  onnx_.add("DequantizeLinear", {codes, scale_name, zero_name}, output);
}

void OnnxNodes::clip(const Node& node, CodeRange range, const std::string& real,
                     const std::string& output) {
  const Quantization& q = *graph_.values[node.output].quantization;
  const auto end = [&](std::int32_t code) {
    const float value = kernels::dequantize_code(static_cast<float>(code),
                                                 static_cast<float>(q.zero_point), q.scale);
    const auto grid = kernels::make_affine(q.range, q.scale, q.zero_point);
    if (kernels::quantize_value(value, grid) != code || !std::isfinite(value)) {
      refuse(node, "the value of code " + std::to_string(code) + " is not exact");
    }
    return value;
  };
  const float lo = end(range.qmin);
  const float hi = end(range.qmax);
  onnx_.add("Clip",
            {real, onnx_.floats(output + "/min", {&lo, 1}, {}),
             onnx_.floats(output + "/max", {&hi, 1}, {})},
            output);
}

}  // namespace steelyard::deploy
