#include "steelyard/export/graph.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

namespace steelyard::deploy {
namespace {

// A graph may come from a file: what it asks for is bounded before anything is computed with it.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 28;  // of one sample's tensor
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 20;    // of a window, in pixels
constexpr std::int64_t kMaxWindow = INT32_MAX / 255;          // pixels whose codes an i32 sums

[[noreturn]] void fail(const Node& node, const std::string& what) {
  throw std::invalid_argument("[graph] " + node.name + " (" + op_name(node.op) + "): " + what);
}

void expect(bool holds, const Node& node, const std::string& what) {
  if (!holds) fail(node, what);
}

void validate_shape(const Value& value) {
  std::int64_t elements = 1;
  bool fits = true;
  for (const std::int64_t dim : value.shape) {
    fits = fits && dim >= 0 &&
           !__builtin_mul_overflow(elements, std::max<std::int64_t>(dim, 1), &elements);
  }
  if (!fits || elements > kMaxElements) {
    throw std::invalid_argument(
        fmt::format("[graph] {}: expected a shape of at most {} elements, got {}", value.name,
                    kMaxElements, shape_string(value.shape)));
  }
}

void validate_extents(const Node& node) {
  const Conv2dGeometry& c = node.conv;
  const Pool2dGeometry& p = node.pool;
  for (const auto& pair : {c.stride, c.padding, c.dilation, p.kernel, p.stride, p.padding}) {
    for (const std::int64_t extent : pair) {
      expect(extent >= 0 && extent <= kMaxExtent, node,
             fmt::format("expected windows of at most {} pixels, got {}", kMaxExtent, extent));
    }
  }
  if (node.op == Op::kMaxPool2d || node.op == Op::kAvgPool2d) {
    expect(p.kernel[0] * p.kernel[1] <= kMaxWindow, node, "its sums can overflow int32");
  }
}

void validate(const Preprocessing& preprocessing, const Shape& input) {
  const auto& [mean, stddev] = preprocessing.normalization;
  const bool fits =
      mean.size() == stddev.size() &&
      (mean.empty() || (!input.empty() && static_cast<std::int64_t>(mean.size()) == input.back()));
  if (!fits) {
    throw std::invalid_argument(
        fmt::format("[graph] {} means and {} standard deviations do not fit the input {}",
                    mean.size(), stddev.size(), shape_string(input)));
  }
  const auto valid = [](float v) { return std::isfinite(v); };
  if (!std::all_of(mean.begin(), mean.end(), valid) ||
      !std::all_of(stddev.begin(), stddev.end(), [&](float v) { return valid(v) && v > 0; })) {
    throw std::invalid_argument("[graph] the normalisation is not finite with deviations above 0");
  }
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
      expect(in.size() == 3 && in[0] * in[1] > 0, node,
             "expected an image, got " + shape_string(in));
      expect(in[0] * in[1] <= kMaxWindow, node, "its sums can overflow int32");
      return {in[2]};
    case Op::kFlatten:
      expect(in.size() == 3 || in.size() == 1, node,
             "expected an image or features, got " + shape_string(in));
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

void validate_codes(const Node& node, const Weights& weights) {
  const std::int64_t outputs = weights.weight.dim(0);
  const auto count = static_cast<std::int64_t>(weights.scales.size());
  if (weights.integer() || outputs == 0) {
    expect(count == outputs, node,
           fmt::format("expected {} weight scales, got {}", outputs, count));
  } else {
    const bool equal_groups =
        count > 0 && count % outputs == 0 && weights.weight.size() % count == 0;
    expect(equal_groups, node,
           fmt::format("{} weight scales do not divide its weight {}", count,
                       shape_string(weights.weight.shape())));
  }
  for (const float scale : weights.scales) {
    expect(std::isfinite(scale) && scale > 0, node,
           fmt::format("expected finite weight scales above 0, got {}", scale));
  }
  expect(weights.bits >= 2 && weights.bits <= 8, node, "weights have 2 to 8 bits");
  const int limit = 1 << (weights.bits - 1);
  expect(weights.zero_points.empty() || weights.zero_points.size() == weights.scales.size(), node,
         fmt::format("expected a weight zero point for each of {} scales, got {}",
                     weights.scales.size(), weights.zero_points.size()));
  for (const std::int8_t zero_point : weights.zero_points) {
    expect(zero_point >= -limit && zero_point < limit, node,
           fmt::format("weight zero point {} does not fit {} bits", zero_point, weights.bits));
  }
  for (const std::int8_t code : weights.weight.span<std::int8_t>()) {
    expect(code >= -limit && code < limit, node,
           fmt::format("weight code {} does not fit {} bits", code, weights.bits));
  }
}

// |bias| + sum of |w - z_w| * max|q - z| of every channel: no order of summation leaves int32.
void validate_sums(const Node& node, const Quantization& input) {
  const Weights& weights = *node.weights;
  const std::int64_t largest =
      std::max(input.zero_point - input.range.qmin, input.range.qmax - input.zero_point);
  const std::int64_t channels = weights.weight.dim(0);
  const std::int64_t terms = channels == 0 ? 0 : weights.weight.size() / channels;
  for (std::int64_t o = 0; o < channels; ++o) {
    std::int64_t sum =
        weights.bias.defined() ? std::abs(std::int64_t{weights.bias.data<std::int32_t>()[o]}) : 0;
    const std::int8_t* row = weights.weight.data<std::int8_t>() + o * terms;
    const std::int32_t zero_point = weights.zero_point(static_cast<std::size_t>(o));
    for (std::int64_t k = 0; k < terms; ++k) sum += std::abs(row[k] - zero_point) * largest;
    expect(sum <= INT32_MAX, node, fmt::format("the sums of channel {} can overflow int32", o));
  }
}

void validate_float(const Node& node, const Weights& weights) {
  expect(weights.has_codes() || (weights.weight.dtype() == DType::kF32 && weights.scales.empty()),
         node, "weights must be i8 with scales or f32 without");
  for (const Tensor& tensor : {weights.weight, weights.bias}) {
    if (!tensor.defined() || tensor.dtype() != DType::kF32) continue;
    for (const float value : tensor.span<float>()) {
      expect(std::isfinite(value), node, fmt::format("a parameter is {}", value));
    }
  }
}

void validate_weights(const Node& node, const std::optional<Quantization>& input,
                      bool quantized_output) {
  expect(node.weights && node.weights->weight.defined() && node.weights->weight.rank() >= 2, node,
         "has no weights");
  const Weights& weights = *node.weights;
  expect(weights.weight.dim(0) == 0 || weights.weight.size() > 0, node,
         "its weight " + shape_string(weights.weight.shape()) + " has no elements");
  if (weights.bias.defined()) {
    expect(weights.bias.dtype() == (weights.integer() ? DType::kI32 : DType::kF32) &&
               weights.bias.shape() == Shape{weights.weight.dim(0)},
           node, "its bias does not fit its weights");
  }
  if (weights.has_codes()) validate_codes(node, weights);
  if (weights.integer()) {
    expect(weights.has_codes(), node, "integer products need weight codes");
    expect(input.has_value(), node, "integer weights need a quantized input");
    validate_sums(node, *input);
  } else {
    validate_float(node, weights);
    expect(!quantized_output, node, "a product in float gives a float output");
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
      validate_weights(node, in, out.has_value());
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

Tensor real_weight(const Weights& weights) {
  if (!weights.has_codes()) return weights.weight;
  Tensor real = Tensor::empty(weights.weight.shape());
  const std::int64_t group = weights.group_size();
  for (std::int64_t i = 0; i < real.size(); ++i) {
    const auto of = static_cast<std::size_t>(i / group);
    real.data<float>()[i] =
        kernels::dequantize_code(static_cast<float>(weights.weight.data<std::int8_t>()[i]),
                                 static_cast<float>(weights.zero_point(of)), weights.scales[of]);
  }
  return real;
}

void validate(const Graph& graph) {
  if (graph.input >= graph.values.size() || graph.output >= graph.values.size()) {
    throw std::invalid_argument("[graph] its input or output is none of its values");
  }
  if (graph.values[graph.input].quantization) {
    throw std::invalid_argument("[graph] its input must be f32");
  }
  for (const Value& value : graph.values) validate_shape(value);
  validate(graph.preprocessing, graph.values[graph.input].shape);
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
    validate_extents(node);
    validate_quantization(graph, node);
    const Shape shape = output_shape(graph, node);
    expect(shape == graph.values[node.output].shape, node,
           "expected the output " + shape_string(shape) + ", got " +
               shape_string(graph.values[node.output].shape));
    made[node.output] = true;
  }
  if (!made[graph.output]) throw std::invalid_argument("[graph] no node makes its output");
}

}  // namespace steelyard::deploy
