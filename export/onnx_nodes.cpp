#include <fmt/core.h>

#include <cmath>

#include "steelyard/export/onnx_graph.h"

namespace steelyard::deploy {
namespace {

using kernels::Activation;
using kernels::CodeRange;

CodeRange range_of(DType dtype) {
  return dtype == DType::kI8 ? CodeRange{-128, 127} : CodeRange{0, 255};
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
    case Op::kConcat: {
      std::vector<std::string> parts;
      for (const std::size_t part : node.inputs) parts.push_back(tensor(part));
      const std::size_t rank = graph_.values[node.output].shape.size();
      const std::size_t axis = rank == 3 ? 1 : rank;  // an image's channels, else the last
      set_attribute(onnx_.add("Concat", parts, output), "axis", static_cast<std::int64_t>(axis));
      return;
    }
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
  refuse_onnx(node, "unknown operation");
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
    if (codes) expect_computable_average(node);
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

// What ONNX Runtime takes for a QLinearGlobalAveragePool (1.30, MLAS); it fails on others.
void OnnxNodes::expect_computable_average(const Node& node) const {
  const Value& in = graph_.values[node.inputs[0]];
  const float multiplier =
      kernels::global_average_multiplier(in.quantization->scale, in.shape[0] * in.shape[1],
                                         graph_.values[node.output].quantization->scale);
  if (multiplier < 0x1p-32F || multiplier >= 256) {
    refuse_onnx(node, fmt::format("ONNX Runtime takes multipliers from 2^-32 to 256, its is {}",
                                  multiplier));
  }
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

bool OnnxNodes::stored_as_s8(const Quantization& q) const {
  return q.dtype == DType::kI8 && options_.profile != qat::Profile::kOrt;
}

int OnnxNodes::code_type(const Quantization& q) const {
  return stored_as_s8(q) ? onnx::TensorProto::INT8 : onnx::TensorProto::UINT8;
}

// Its byte, that of u8 too.
std::int8_t OnnxNodes::stored_zero_point(const Quantization& q) const {
  const bool shifted = q.dtype == DType::kI8 && !stored_as_s8(q);
  return static_cast<std::int8_t>(q.zero_point + (shifted ? 128 : 0));
}

void OnnxNodes::quantize_and_back(const Node& node, const std::string& real,
                                  const std::string& prefix, const std::string& output) {
  const Quantization& q = *graph_.values[node.output].quantization;
  const std::int8_t zero_point = stored_zero_point(q);
  const std::string scale_name = onnx_.floats(prefix + "/scale", {&q.scale, 1}, {});
  const std::string zero_name =
      onnx_.codes(prefix + "/zero_point", code_type(q), {&zero_point, 1}, {});
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
      refuse_onnx(node, "the value of code " + std::to_string(code) + " is not exact");
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
