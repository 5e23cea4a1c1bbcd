#include "export/graph.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace steelyard::deploy {
namespace {

[[noreturn]] void fail(const Node& node, const std::string& what) {
  throw std::invalid_argument("[graph] " + node.name + " (" + op_name(node.op) + "): " + what);
}

void expect(bool holds, const Node& node, const std::string& what) {
  if (!holds) fail(node, what);
}

std::string pair_text(const std::array<std::int64_t, 2>& pair) {
  return fmt::format("{}x{}", pair[0], pair[1]);
}

// One sample as a batch of one: what the engine's shape functions take.
Shape batched(const Shape& sample) {
  Shape shape = sample;
  shape.insert(shape.begin(), 1);
  return shape;
}

Shape linear_shape(const Node& node, const Shape& in) {
  const Shape& weight = node.weights->weight.shape();
  expect(weight.size() == 2 && !in.empty() && in.back() == weight[1], node,
         "input " + shape_string(in) + " does not fit the weight " + shape_string(weight));
  Shape out = in;
  out.back() = weight[0];
  return out;
}

Shape joined_shape(const Graph& graph, const Node& node) {
  Shape joined = graph.values[node.inputs[0]].shape;
  expect(!joined.empty(), node, "expected inputs with channels or features");
  joined.back() = 0;
  for (const std::size_t input : node.inputs) {
    const Shape& part = graph.values[input].shape;
    expect(part.size() == joined.size() && std::equal(part.begin(), part.end() - 1, joined.begin()),
           node, "its inputs differ in more than the last dimension");
    joined.back() += part.back();
  }
  return joined;
}

// The shape that a node gives to one sample.
Shape output_shape(const Graph& graph, const Node& node) {
  const Shape& in = graph.values[node.inputs[0]].shape;
  const auto pooled = [&](const Pool2dGeometry& geometry) {
    return pool2d_shape(op_name(node.op), batched(in), geometry);
  };
  switch (node.op) {
    case Op::kLinear:
      return linear_shape(node, in);
    case Op::kConv2d: {
      const auto s = conv2d_shape(batched(in), node.weights->weight.shape(), node.conv);
      return {s.out_h(), s.out_w(), s.out_channels};
    }
    case Op::kMaxPool2d:
    case Op::kAvgPool2d: {
      const auto s = pooled(node.pool);
      return {s.out_h(), s.out_w(), s.channels};
    }
    case Op::kGlobalAvgPool:
      expect(in.size() == 3, node, "expected an image, got " + shape_string(in));
      return {in[2]};
    case Op::kFlatten:
      return {shape_size(in)};
    case Op::kAdd:
      expect(graph.values[node.inputs[1]].shape == in, node, "its inputs differ in shape");
      return in;
    case Op::kConcat:
      return joined_shape(graph, node);
    case Op::kQuantize:
    case Op::kRelu:
    case Op::kRelu6:
      return in;
  }
  fail(node, "unknown operation");
}

void validate(const Node& node, const Quantization& q) {
  const kernels::CodeRange whole =
      q.dtype == DType::kI8 ? kernels::CodeRange{-128, 127} : kernels::CodeRange{0, 255};
  expect(q.dtype == DType::kI8 || q.dtype == DType::kU8, node, "codes must be i8 or u8");
  expect(std::isfinite(q.scale) && q.scale > 0, node,
         fmt::format("expected a finite scale above 0, got {}", q.scale));
  expect(whole.qmin <= q.range.qmin && q.range.qmin <= q.zero_point &&
             q.zero_point <= q.range.qmax && q.range.qmax <= whole.qmax,
         node,
         fmt::format("zero point {} and codes {}..{} do not fit {}", q.zero_point, q.range.qmin,
                     q.range.qmax, dtype_name(q.dtype)));
}

void validate_integer(const Node& node, const Weights& weights) {
  const auto channels = static_cast<std::size_t>(weights.weight.dim(0));
  expect(weights.scales.size() == channels, node,
         fmt::format("expected {} weight scales, got {}", channels, weights.scales.size()));
  for (const float scale : weights.scales) {
    expect(std::isfinite(scale) && scale > 0, node,
           fmt::format("expected finite weight scales above 0, got {}", scale));
  }
  expect(weights.bits >= 2 && weights.bits <= 8, node, "weights have 2 to 8 bits");
  const int limit = 1 << (weights.bits - 1);
  for (const std::int8_t code : weights.weight.span<std::int8_t>()) {
    expect(code >= -limit && code < limit, node,
           fmt::format("weight code {} does not fit {} bits", code, weights.bits));
  }
  const std::int64_t terms = channels == 0 ? 0 : weights.weight.size() / weights.weight.dim(0);
  expect(terms <= INT32_MAX / (255 * 128), node, "its sums can overflow int32");
}

void validate_float(const Node& node, const Weights& weights) {
  expect(weights.weight.dtype() == DType::kF32 && weights.scales.empty(), node,
         "weights must be i8 with scales or f32 without");
  for (const Tensor& tensor : {weights.weight, weights.bias}) {
    if (!tensor.defined()) continue;
    for (const float value : tensor.span<float>()) {
      expect(std::isfinite(value), node, fmt::format("a parameter is {}", value));
    }
  }
}

void validate_weights(const Node& node, bool quantized_input, bool quantized_output) {
  expect(node.weights && node.weights->weight.defined() && node.weights->weight.rank() >= 2, node,
         "has no weights");
  const Weights& weights = *node.weights;
  if (weights.bias.defined()) {
    expect(weights.bias.dtype() == (weights.integer() ? DType::kI32 : DType::kF32) &&
               weights.bias.shape() == Shape{weights.weight.dim(0)},
           node, "its bias does not fit its weights");
  }
  if (weights.integer()) {
    validate_integer(node, weights);
    expect(quantized_input, node, "integer weights need a quantized input");
  } else {
    validate_float(node, weights);
    expect(!quantized_output, node, "float weights give a float output");
  }
}

void validate_quantization(const Graph& graph, const Node& node) {
  const auto& in = graph.values[node.inputs[0]].quantization;
  const auto& out = graph.values[node.output].quantization;
  if (out) validate(node, *out);
  switch (node.op) {
    case Op::kQuantize:
      expect(!in && out, node, "makes codes of floats");
      return;
    case Op::kLinear:
    case Op::kConv2d:
      validate_weights(node, in.has_value(), out.has_value());
      return;
    case Op::kAdd:
      expect(!out || (in && graph.values[node.inputs[1]].quantization), node,
             "a quantized sum needs quantized operands");
      return;
    case Op::kConcat:
      for (const std::size_t input : node.inputs) {
        expect(!out || graph.values[input].quantization, node,
               "a quantized join needs quantized operands");
      }
      return;
    case Op::kRelu:
    case Op::kRelu6:
    case Op::kMaxPool2d:
    case Op::kFlatten:
      expect(in == out, node, "keeps the quantization of its input");
      return;
    case Op::kAvgPool2d:
    case Op::kGlobalAvgPool:
      expect(in.has_value() == out.has_value(), node, "input and output are both codes or floats");
      return;
  }
}

std::string value_text(const Value& value) {
  std::string text = shape_string(value.shape);
  if (!value.quantization) return "f32 " + text;
  const Quantization& q = *value.quantization;
  return fmt::format("{} {} codes {}..{}, scale {}, zero point {}", dtype_name(q.dtype), text,
                     q.range.qmin, q.range.qmax, q.scale, q.zero_point);
}

std::string operation_text(const Node& node) {
  std::string text = op_name(node.op);
  if (node.op == Op::kConv2d) {
    const Shape& w = node.weights->weight.shape();
    text += fmt::format(" {}x{}, stride {}, padding {}", w[2], w[3], pair_text(node.conv.stride),
                        pair_text(node.conv.padding));
    if (node.conv.dilation != std::array<std::int64_t, 2>{1, 1})
      text += ", dilation " + pair_text(node.conv.dilation);
    if (node.conv.groups != 1) text += fmt::format(", groups {}", node.conv.groups);
  }
  if (node.op == Op::kMaxPool2d || node.op == Op::kAvgPool2d) {
    text += fmt::format(" {}, stride {}, padding {}", pair_text(node.pool.kernel),
                        pair_text(node.pool.stride), pair_text(node.pool.padding));
  }
  if (node.activation == kernels::Activation::kRelu) text += " + relu";
  if (node.activation == kernels::Activation::kRelu6) text += " + relu6";
  return text;
}

std::string weights_text(const Weights& weights) {
  std::string text = fmt::format(
      "weight {} {}", weights.integer() ? fmt::format("int{}", weights.bits) : std::string("f32"),
      shape_string(weights.weight.shape()));
  if (weights.integer()) {
    const auto [lo, hi] = std::minmax_element(weights.scales.begin(), weights.scales.end());
    if (!weights.scales.empty()) text += fmt::format(", scales {}..{}", *lo, *hi);
  }
  return text + (weights.bias.defined() ? ", bias" : "");
}

}  // namespace

const char* op_name(Op op) {
  switch (op) {
    case Op::kQuantize:
      return "quantize";
    case Op::kLinear:
      return "linear";
    case Op::kConv2d:
      return "conv2d";
    case Op::kAdd:
      return "add";
    case Op::kConcat:
      return "concat";
    case Op::kRelu:
      return "relu";
    case Op::kRelu6:
      return "relu6";
    case Op::kMaxPool2d:
      return "max_pool2d";
    case Op::kAvgPool2d:
      return "avg_pool2d";
    case Op::kGlobalAvgPool:
      return "global_avg_pool";
    case Op::kFlatten:
      return "flatten";
  }
  return "unknown";
}

void validate(const Graph& graph) {
  if (graph.input >= graph.values.size() || graph.output >= graph.values.size()) {
    throw std::invalid_argument("[graph] its input or output is none of its values");
  }
  if (graph.values[graph.input].quantization) {
    throw std::invalid_argument("[graph] its input must be f32");
  }
  std::vector<bool> made(graph.values.size(), false);
  made[graph.input] = true;
  for (const Node& node : graph.nodes) {
    const bool any_number = node.op == Op::kConcat && !node.inputs.empty();
    expect(any_number || node.inputs.size() == (node.op == Op::kAdd ? 2U : 1U), node,
           "wrong number of inputs");
    for (const std::size_t input : node.inputs) {
      expect(input < made.size() && made[input], node, "reads a value that no node made before");
    }
    expect(node.output < made.size() && !made[node.output], node,
           "its output is made by another node");
    const bool linear_map = node.op == Op::kLinear || node.op == Op::kConv2d;
    expect(node.weights.has_value() == linear_map, node, "weights belong to linear and conv2d");
    expect(node.activation == kernels::Activation::kNone || linear_map || node.op == Op::kAdd, node,
           "has no fused activation");
    expect(node.activation == kernels::Activation::kNone ||
               graph.values[node.output].quantization.has_value(),
           node, "a fused activation is a clamp of codes, its output is float");
    validate_quantization(graph, node);
    const Shape shape = output_shape(graph, node);
    expect(shape == graph.values[node.output].shape, node,
           "expected the output " + shape_string(shape) + ", got " +
               shape_string(graph.values[node.output].shape));
    made[node.output] = true;
  }
  if (!made[graph.output]) throw std::invalid_argument("[graph] no node makes its output");
}

std::string to_string(const Graph& graph) {
  std::size_t width = 5;
  for (const Node& node : graph.nodes) width = std::max(width, node.name.size());
  std::string text =
      fmt::format("{:<{}}  {}\n", "input", width, value_text(graph.values[graph.input]));
  for (const Node& node : graph.nodes) {
    std::string from;
    for (const std::size_t input : node.inputs) {
      from += (from.empty() ? "" : " + ") + graph.values[input].name;
    }
    text +=
        fmt::format("{:<{}}  {} of {}\n{:<{}}    -> {}\n", node.name, width, operation_text(node),
                    from, "", width, value_text(graph.values[node.output]));
    if (node.weights) text += fmt::format("{:<{}}    {}\n", "", width, weights_text(*node.weights));
  }
  return text + fmt::format("{} bytes of parameters\n", parameter_bytes(graph));
}

std::int64_t parameter_bytes(const Graph& graph) {
  std::int64_t bytes = 0;
  for (const Node& node : graph.nodes) {
    if (!node.weights) continue;
    const Weights& w = *node.weights;
    const int bits = w.integer() ? (w.bits <= 4 ? 4 : 8) : 32;
    bytes += (w.weight.size() * bits + 7) / 8;
    bytes += static_cast<std::int64_t>(w.scales.size() * sizeof(float));
    if (w.bias.defined()) bytes += w.bias.bytes();
  }
  return bytes;
}

}  // namespace steelyard::deploy
