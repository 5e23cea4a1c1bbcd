#include "steelyard/export/onnx/onnx_nodes.h"

#include <algorithm>
#include <cmath>

#include "steelyard/export/op_form.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/file_order.h"
#include "steelyard/runtime/op_info.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

using kernels::CodeRange;

// Whether a node reads and makes values of three dimensions as [N, C, H, W].
bool works_channels_first(const Graph& graph, const Node& node,
                          const std::vector<bool>& channels_first) {
  const OnnxOrder order = op_form(node.op).onnx_order;
  if (order != OnnxOrder::kOfInput) return order == OnnxOrder::kChannelsFirst;
  for (const std::size_t input : node.inputs) {
    if (graph.values[input].shape.size() == 3) return channels_first[input];
  }
  return false;
}

std::int64_t axis_in_file(std::size_t axis, bool channels_first) {
  constexpr std::int64_t kChannelsFirst[] = {2, 3, 1};
  return channels_first ? kChannelsFirst[axis] : static_cast<std::int64_t>(axis) + 1;
}

const char* suffix(bool channels_first) {
  return channels_first ? "/channels_first" : "/channels_last";
}

// The tensor of a port's values as floats.
std::string floats_of(const Port& port) {
  return port.dtype == DType::kF32 ? port.name : port.name + "/floats";
}

using Order = std::vector<std::int64_t>;

// Dimensions of the order `before` in the order `after`.
void turn(OnnxGraph& onnx, const std::string& from, const Order& before, const std::string& to,
          const Order& after) {
  onnx.add("Transpose", {from}, to, {{"perm", order_between(before, after)}});
}

}  // namespace

void refuse_onnx(const Node& node, const std::string& why) {
  throw InputError("export: " + node.name + " (" + op_name(node.op) + ") has no ONNX form: " + why);
}

std::vector<OnnxAttribute> window_attributes(const Pool2dGeometry& pool) {
  return {{"kernel_shape", pair(pool.kernel)},
          {"strides", pair(pool.stride)},
          {"pads", pads(pool.padding)}};
}

std::vector<bool> channels_first(const Graph& graph) {
  std::vector<bool> result(graph.values.size(), false);
  const auto is_image = [&](std::size_t value) { return graph.values[value].shape.size() == 3; };
  result[graph.input] = is_image(graph.input);
  for (const Node& node : graph.nodes) {
    result[node.output] = is_image(node.output) && works_channels_first(graph, node, result);
  }
  return result;
}

const Port* OnnxNodes::port_of(std::size_t value) const {
  if (value == graph_.input) return graph_.input_ports.empty() ? &graph_.input_port : nullptr;
  if (graph_.output_ports.empty()) return value == graph_.output ? &graph_.output_port : nullptr;
  const std::vector<std::size_t>& outputs = graph_.nodes.back().inputs;
  const auto first = std::find(outputs.begin(), outputs.end(), value);
  if (first == outputs.end()) return nullptr;
  return &graph_.output_ports[static_cast<std::size_t>(first - outputs.begin())].port;
}

std::string OnnxNodes::tensor(std::size_t value) const {
  const Port* port = port_of(value);
  if (port == nullptr) return graph_.values[value].name + "/values";
  const std::string floats = floats_of(*port);
  if (order_of(value) == order_of(*port, value)) return floats;
  return floats + (port->batch_axis == 0 ? suffix(channels_first_[value]) : "/batch_first");
}

Order OnnxNodes::order_of(std::size_t value) const {
  return file_order(graph_.values[value].shape.size(), !channels_first_[value], 0);
}

Order OnnxNodes::order_of(const Port& port, std::size_t value) const {
  return file_order(graph_.values[value].shape.size(), port.channels_last, port.batch_axis);
}

void OnnxNodes::take(const Port& port, std::size_t value, const std::string& tensor) {
  constexpr std::int64_t kOnnxFloat = 1;
  const bool turns = order_of(value) != order_of(port, value);
  std::string floats = port.name;
  if (port.dtype != DType::kF32) {
    floats = turns ? floats_of(port) : tensor;
    onnx_.add("Cast", {port.name}, floats, {{"to", kOnnxFloat}});
  }
  if (turns) {
    turn(onnx_, floats, order_of(port, value), tensor, order_of(value));
  } else if (floats != tensor) {
    onnx_.add("Identity", {floats}, tensor);
  }
}

// Nothing is left to do where the value's own tensor is the port.
void OnnxNodes::give(std::size_t value, const Port& port) {
  const std::string held = tensor(value);
  if (held == port.name) return;
  const Order before = order_of(value), after = order_of(port, value);
  if (before == after) return onnx_.add("Identity", {held}, port.name);
  turn(onnx_, held, before, port.name, after);
}

std::int64_t OnnxNodes::held_axis(std::size_t value, std::size_t axis) const {
  return axis_in_file(axis, channels_first_[value]);
}

std::int64_t OnnxNodes::axis(const Node& node, std::size_t axis) const {
  return axis_in_file(axis, graph_.values[node.output].shape.size() == 3 &&
                                works_channels_first(graph_, node, channels_first_));
}

namespace {

// Whether the node is a pool of floats with a border of zeros around them, which an operation of
// its own made.
bool pools_padded(const Graph& graph, const Node& node, std::size_t value) {
  if (node.op != Op::kMaxPool2d && node.op != Op::kAvgPool2d) return false;
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& maker) {
    return maker.output == value && maker.op == Op::kPad && maker.as<Border>().value == 0 &&
           !graph.values[value].quantization;
  });
}

}  // namespace

std::string OnnxNodes::read_by(const Node& node, std::size_t value) {
  if (options_.profile == qat::Profile::kOrt && pools_padded(graph_, node, value)) {
    return behind_max(value);
  }
  const auto& quantization = graph_.values[value].quantization;
  const bool in_integers = node.weights && node.weights->one_scale_per_channel();
  if (!quantization || in_integers || graph_.values[node.output].quantization ||
      options_.profile != qat::Profile::kOrt) {
    return tensor(value);
  }
  return behind_max(value);
}

std::string OnnxNodes::behind_max(std::size_t value) {
  const std::string name = graph_.values[value].name + "/reals";
  if (made_.insert(name).second) onnx_.add("Max", {tensor(value)}, name);
  return name;
}

std::string OnnxNodes::input(const Node& node, std::size_t i) {
  return in_order(node, node.inputs[i], read_by(node, node.inputs[i]));
}

std::string OnnxNodes::input_of_floats(const Node& node, std::size_t i) {
  return in_order(node, node.inputs[i], behind_max(node.inputs[i]));
}

std::string OnnxNodes::codes(const Node& node, std::size_t i) {
  return in_order(node, node.inputs[i], graph_.values[node.inputs[i]].name + "/codes");
}

std::string OnnxNodes::in_order(const Node& node, std::size_t value, const std::string& held) {
  const bool wanted = works_channels_first(graph_, node, channels_first_);
  if (graph_.values[value].shape.size() != 3 || channels_first_[value] == wanted) return held;
  const std::string name = held + suffix(wanted);
  if (made_.insert(name).second) {
    turn(onnx_, held, order_of(value), name, file_order(3, !wanted, 0));
  }
  return name;
}

std::string OnnxNodes::operand(const Node& node, std::size_t place) {
  const Tensor* constant = constant_at(node, place);
  if (constant == nullptr) return input(node, input_at(node, place));
  const std::string name = node.name + "/operand" + std::to_string(place);
  const std::size_t rank = graph_.values[node.output].shape.size() + 1;
  const bool turns = rank == 4 && works_channels_first(graph_, node, channels_first_);
  Shape shape = constant->shape();
  if (!turns || shape.empty()) return onnx_.floats(name, constant->span<float>(), shape);
  shape.insert(shape.begin(), rank - shape.size(), 1);
  std::vector<float> values;
  for (std::int64_t i = 0; i < constant->size(); ++i) {  // [1, H, W, C] as [1, C, H, W]
    const std::int64_t pixels = shape[1] * shape[2];
    values.push_back(constant->data<float>()[i % pixels * shape[3] + i / pixels]);
  }
  return onnx_.floats(name, values, {1, shape[3], shape[1], shape[2]});
}

void OnnxNodes::add_all() {
  if (graph_.input_ports.empty()) take(graph_.input_port, graph_.input, tensor(graph_.input));
  for (const Node& node : graph_.nodes) add(node);
  if (graph_.output_ports.empty()) give(graph_.output, graph_.output_port);
}

void OnnxNodes::add(const Node& node) {
  const OpForm& form = op_form(node.op);
  if (form.onnx == nullptr) return quantize(node, input(node));
  if (!graph_.values[node.output].quantization) return form.onnx(*this, node, tensor(node.output));
  const std::string real = node.name + "/real";
  form.onnx(*this, node, real);
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

// The zero point's byte, that of u8 too.
std::int8_t OnnxNodes::stored_zero_point(const Quantization& q) const {
  const bool shifted = q.dtype == DType::kI8 && !stored_as_s8(q);
  return static_cast<std::int8_t>(q.zero_point + (shifted ? 128 : 0));
}

std::string OnnxNodes::zero_point(const std::string& name, const Quantization& q) const {
  if (q.wide()) return onnx_.wide_codes(name, code_type(q), {&q.zero_point, 1}, {});
  const std::int8_t value = stored_zero_point(q);
  return onnx_.codes(name, code_type(q), {&value, 1}, {});
}

void OnnxNodes::quantize_and_back(const Node& node, const std::string& real,
                                  const std::string& prefix, const std::string& output) {
  const Quantization& q = *graph_.values[node.output].quantization;
  const std::string scale_name = onnx_.floats(prefix + "/scale", {&q.scale, 1}, {});
  const std::string zero_name = zero_point(prefix + "/zero_point", q);
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
    const auto grid = kernels::make_code_grid(q.range, q.scale, q.zero_point);
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
