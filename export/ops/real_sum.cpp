#include "steelyard/export/ops/real_sum.h"

#include "steelyard/export/onnx/onnx_nodes.h"

namespace steelyard::deploy {
namespace {

constexpr std::int64_t kOnnxFloat = 1, kOnnxUint8 = 2, kOnnxInt32 = 6, kOnnxInt64 = 7;
constexpr std::int32_t kByte = 256;

// Tensors that are made on the way, by names beneath the node's.
class Steps {
 public:
  Steps(OnnxNodes& nodes, const Node& node) : nodes_(nodes), prefix_(node.name + "/sum/") {}

  std::string add(const std::string& name, const std::string& operation,
                  const std::vector<std::string>& inputs,
                  const std::vector<OnnxAttribute>& attributes = {}) {
    nodes_.onnx().add(operation, inputs, prefix_ + name, attributes);
    return prefix_ + name;
  }
  std::string cast(const std::string& name, const std::string& input, std::int64_t type) {
    return add(name, "Cast", {input}, {{"to", type}});
  }
  std::string int32(const std::string& name, std::int32_t value) {
    return nodes_.onnx().int32s(prefix_ + name, {&value, 1}, {});
  }
  std::string int64(const std::string& name, std::int64_t value) {
    return nodes_.onnx().int64s(prefix_ + name, {&value, 1}, {});
  }
  std::string byte(const std::string& name, std::int32_t value) {
    const auto code = static_cast<std::int8_t>(value);  // its bits
    return nodes_.onnx().codes(prefix_ + name, OnnxType::kUint8, {&code, 1}, {});
  }

 private:
  OnnxNodes& nodes_;
  std::string prefix_;
};

// The sum as INT64 for wide codes: 256 times that of the high bytes and that of the low ones.
std::string sum_of_bytes(Steps& steps, const RealSum& sum, const std::string& codes,
                         const Quantization& q) {
  const std::int32_t lowest = q.whole_range().qmin;
  std::string whole = steps.cast("whole", codes, kOnnxInt32);
  if (lowest != 0) whole = steps.add("above", "Sub", {whole, steps.int32("lowest", lowest)});
  const std::string byte = steps.int32("byte", kByte);
  const std::int32_t zero = q.zero_point - lowest;
  const auto product = [&](const std::string& name, const std::string& operation,
                           std::int32_t zero_byte) {
    const std::string part = steps.add(name + "_part", operation, {whole, byte});
    const std::string of =
        steps.add(name + "_sum", sum.operation,
                  {steps.cast(name, part, kOnnxUint8), sum.weights,
                   steps.byte(name + "_zero_point", zero_byte), sum.weight_zero_point},
                  sum.attributes);
    return steps.cast(name + "_sum_wide", of, kOnnxInt64);
  };
  const std::string high = product("high", "Div", zero / kByte);
  const std::string low = product("low", "Mod", zero % kByte);
  const std::string scaled = steps.add("high_scaled", "Mul", {high, steps.int64("factor", kByte)});
  return steps.add("products", "Add", {scaled, low});
}

}  // namespace

void add_real_sum(OnnxNodes& nodes, const Node& node, const RealSum& sum,
                  const std::string& output) {
  const Value& input = nodes.graph().values[node.inputs[0]];
  const Quantization& q = *input.quantization;
  const std::string codes = nodes.codes(node);
  Steps steps(nodes, node);
  std::string total;
  if (q.wide()) {
    total = sum_of_bytes(steps, sum, codes, q);
  } else {
    const std::string zero = nodes.zero_point(node.name + "/sum/zero_point", q);
    const std::string products =
        steps.add("products_int32", sum.operation,
                  {codes, sum.weights, zero, sum.weight_zero_point}, sum.attributes);
    total = steps.cast("products", products, kOnnxInt64);
  }
  if (!sum.bias.empty()) total = steps.add("with_bias", "Add", {total, sum.bias});
  const std::string scale =
      nodes.onnx().floats(node.name + "/sum/scale", sum.scales, sum.channel_shape);
  nodes.onnx().add("Mul", {steps.cast("real", total, kOnnxFloat), scale}, output);
}

bool has_real_sums(const OnnxNodes& nodes, const Node& node) {
  const auto& in = nodes.graph().values[node.inputs[0]].quantization;
  return in && node.weights->one_scale_per_channel() &&
         rounds_reals(*in, nodes.graph().values[node.output].quantization);
}

void add_real_products(OnnxNodes& nodes, const Node& node, const std::string& operation,
                       const std::vector<std::int8_t>& codes, const Shape& shape,
                       const std::vector<OnnxAttribute>& attributes, const std::string& output) {
  if (const std::string why = onnx_refusal(nodes.graph()); !why.empty()) refuse_onnx(node, why);
  const Weights& weights = *node.weights;
  const bool image = node.op == Op::kConv2d;
  const auto channels = static_cast<std::int64_t>(weights.scales.size());
  const Shape channel_shape = image ? Shape{1, channels, 1, 1} : Shape{channels};
  std::vector<float> scales;
  for (const float scale : weights.scales) {
    scales.push_back(nodes.graph().values[node.inputs[0]].quantization->scale * scale);
  }
  const auto above = [](std::int8_t code) { return static_cast<std::int8_t>(code + 128); };
  std::vector<std::int8_t> bytes, zero_points;
  for (const std::int8_t code : codes) bytes.push_back(above(code));
  for (const std::int8_t zero_point : weights.zero_points) zero_points.push_back(above(zero_point));
  const Shape zero_shape = zero_points.empty() ? Shape{} : Shape{channels};
  if (zero_points.empty()) zero_points.push_back(above(0));
  OnnxGraph& onnx = nodes.onnx();
  const std::string name = node.name + "/weight";
  RealSum sum{.operation = operation,
              .weights = onnx.codes(name + "_codes", OnnxType::kUint8, bytes, shape),
              .weight_zero_point =
                  onnx.codes(name + "_zero_point", OnnxType::kUint8, zero_points, zero_shape),
              .attributes = attributes,
              .scales = scales,
              .channel_shape = channel_shape};
  if (weights.bias.defined()) {
    const auto bias = weights.bias.span<std::int32_t>();
    const std::vector<std::int64_t> wide(bias.begin(), bias.end());
    sum.bias = nodes.onnx().int64s(node.name + "/bias_codes", wide, channel_shape);
  }
  add_real_sum(nodes, node, sum, output);
}

std::string onnx_refusal(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (!node.weights || !node.weights->one_scale_per_channel()) continue;
    const bool sums = rounds_reals(*graph.values[node.inputs[0]].quantization,
                                   graph.values[node.output].quantization);
    if (sums && node.op != Op::kLinear && !node.weights->zero_points.empty()) {
      return node.name +
             ": a convolution with zero points of weights has no form with codes of more than 8 "
             "bits";
    }
  }
  return "";
}

}  // namespace steelyard::deploy
