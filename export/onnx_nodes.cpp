#include "steelyard/export/onnx_nodes.h"

#include <cmath>

#include "steelyard/export/op_info.h"
#include "steelyard/framework/error.h"

namespace steelyard::deploy {
namespace {

using kernels::CodeRange;

}  // namespace

void refuse_onnx(const Node& node, const std::string& why) {
  throw InputError("export: " + node.name + " (" + op_name(node.op) + ") has no ONNX form: " + why);
}

std::vector<OnnxAttribute> window_attributes(const Pool2dGeometry& pool) {
  return {{"kernel_shape", pair(pool.kernel)},
          {"strides", pair(pool.stride)},
          {"pads", pads(pool.padding)}};
}

std::string inner_name(const Port& port, const Shape& shape) {
  return port.channels_last && shape.size() == 3 ? port.name + "/channels_first" : port.name;
}

std::string OnnxNodes::tensor(std::size_t value) const {
  if (value == graph_.input) return inner_name(graph_.input_port, graph_.values[value].shape);
  if (value == graph_.output) return inner_name(graph_.output_port, graph_.values[value].shape);
  return graph_.values[value].name + "/values";
}

void OnnxNodes::add_all() {
  for (const Node& node : graph_.nodes) add(node);
}

void OnnxNodes::add(const Node& node) {
  const OpInfo& info = op_info(node.op);
  if (info.onnx == nullptr) return quantize(node, input(node));
  if (!graph_.values[node.output].quantization) return info.onnx(*this, node, tensor(node.output));
  const std::string real = node.name + "/real";
  info.onnx(*this, node, real);
  quantize(node, real);
}

// QuantizeLinear saturates at the ends of its type. If fewer codes are allowed (by a narrower
// range, or by an activation whose zero is not an end of the type), the dequantized values are
// clipped. That is exact, and the operation before still fuses.
void OnnxNodes::quantize(const Node& node, const std::string& real) {
  const Quantization& q = *graph_.values[node.output].quantization;
  const CodeRange left =
      kernels::activation_code_range(node.activation, q.range, q.scale, q.zero_point);
  const std::string output = tensor(node.output);
  if (op_info(node.op).keeps_codes || left == q.whole_range()) {
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

OnnxType OnnxNodes::code_type(const Quantization& q) const {
  if (q.wide()) return q.whole_range().qmin < 0 ? OnnxType::kInt16 : OnnxType::kUint16;
  return stored_as_s8(q) ? OnnxType::kInt8 : OnnxType::kUint8;
}

// Its byte, that of u8 too.
std::int8_t OnnxNodes::stored_zero_point(const Quantization& q) const {
  const bool shifted = q.dtype == DType::kI8 && !stored_as_s8(q);
  return static_cast<std::int8_t>(q.zero_point + (shifted ? 128 : 0));
}

std::string OnnxNodes::zero_points(const std::string& name, const Quantization& q,
                                   const Shape& shape) const {
  const auto count = static_cast<std::size_t>(shape_size(shape));
  if (q.wide()) {
    const std::vector<std::int32_t> values(count, q.zero_point);
    return onnx_.wide_codes(name, code_type(q), values, shape);
  }
  const std::vector<std::int8_t> values(count, stored_zero_point(q));
  return onnx_.codes(name, code_type(q), values, shape);
}

void OnnxNodes::quantize_and_back(const Node& node, const std::string& real,
                                  const std::string& prefix, const std::string& output) {
  const Quantization& q = *graph_.values[node.output].quantization;
  const std::string scale_name = onnx_.floats(prefix + "/scale", {&q.scale, 1}, {});
  const std::string zero_name = zero_points(prefix + "/zero_point", q, {});
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
