#include "steelyard/runtime/graph.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "steelyard/framework/tensor/printable.h"
#include "steelyard/runtime/op_info.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

// A graph may come from a file, so its sizes are checked before anything is computed.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 28;  // of one sample's tensor
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 20;    // of a window, in pixels

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
  using Extents = std::array<std::int64_t, 2>;
  for_each_option(node.options, [&](const char*, const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Extents>) {
      for (const std::int64_t extent : value) {
        expect(extent >= 0 && extent <= kMaxExtent, node,
               fmt::format("expected windows of at most {} pixels, got {}", kMaxExtent, extent));
      }
    }
  });
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
    throw std::invalid_argument(
        "[graph] expected a finite normalization with standard deviations above 0");
  }
}

void validate(const Node& node, const Quantization& q) {
  const kernels::CodeRange whole = q.whole_range();
  expect(q.dtype == DType::kI8 || q.dtype == DType::kU8 || q.dtype == DType::kI32, node,
         "codes must be i8, u8 or i32");
  expect(std::isfinite(q.scale) && q.scale > 0, node,
         fmt::format("expected a finite scale above 0, got {}", q.scale));
  expect(whole.qmin <= q.range.qmin && q.range.qmin <= q.zero_point &&
             q.zero_point <= q.range.qmax && q.range.qmax <= whole.qmax,
         node,
         fmt::format("zero point {} and codes {}..{} do not fit {}", q.zero_point, q.range.qmin,
                     q.range.qmax, dtype_name(q.dtype)));
}

// Of a node whose output has codes in fixed point: so has its input, if it has any.
void validate_fixed_point(const Graph& graph, const Node& node) {
  const Quantization& q = *graph.values[node.output].quantization;
  expect(q.dtype == DType::kI8 && q.range == q.whole_range(), node,
         fmt::format("expected the codes -128..127 as i8 in fixed point, got {}..{} as {}",
                     q.range.qmin, q.range.qmax, dtype_name(q.dtype)));
  const OpInfo& info = op_info(node.op);
  expect(info.fixed_point || info.keeps_codes || node.op == Op::kQuantize, node,
         "has no form in fixed point");
  if (node.op == Op::kQuantize) return;
  for (const std::size_t input : node.inputs) {
    const auto& read = graph.values[input].quantization;
    expect(read && read->rounding == q.rounding, node,
           "expected inputs with codes of the same rounding");
  }
}

void validate_quantization(const Graph& graph, const Node& node) {
  const auto& in = graph.values[node.inputs[0]].quantization;
  const auto& out = graph.values[node.output].quantization;
  if (out) validate(node, *out);
  const OpInfo& info = op_info(node.op);
  if (info.keeps_codes && out) expect(in == out, node, "keeps the quantization of its input");
  if (out && out->fixed_point()) validate_fixed_point(graph, node);
  if (info.check != nullptr) info.check(graph, node);
}

}  // namespace

Tensor real_weight(const Weights& weights) {
  if (!weights.has_codes()) return weights.weight;
  Tensor real = Tensor::empty(weights.weight.shape());
  const auto codes = weights.weight.span<std::int8_t>();
  const std::int64_t group = weights.group_size();
  for (std::int64_t i = 0; i < real.size(); ++i) {
    const auto of = static_cast<std::size_t>(i / group);
    real.data<float>()[i] =
        kernels::dequantize_code(static_cast<float>(codes[static_cast<std::size_t>(i)]),
                                 static_cast<float>(weights.zero_point(of)), weights.scales[of]);
  }
  return real;
}

bool same_elements(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  for (const Tensor* tensor : {&a, &b}) {
    if (tensor->size() == 0 || tensor->raw() != nullptr) continue;
    throw std::invalid_argument("[graph] expected weights with elements, got their shape " +
                                shape_string(tensor->shape()) + " alone");
  }
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0;
}

bool same_weight(const Weights& a, const Weights& b) {
  return a.product == b.product && a.bits == b.bits && a.scales == b.scales &&
         a.zero_points == b.zero_points && same_elements(a.weight, b.weight);
}

bool same_weights(const Weights& a, const Weights& b) {
  return same_elements(a.bias, b.bias) && same_weight(a, b);
}

std::size_t home_of_weight(const Graph& graph, const Node& node) {
  const auto first = std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& other) {
    return &other == &node || (other.weights && same_weight(*other.weights, *node.weights));
  });
  return static_cast<std::size_t>(first - graph.nodes.begin());
}

const std::string& home_of_weights(const Graph& graph, const Node& node) {
  const auto first = std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& other) {
    return other.weights && same_weights(*other.weights, *node.weights);
  });
  return first == graph.nodes.end() ? node.name : first->name;
}

namespace {

void validate_port(const Port& port, const Shape& sample) {
  if (port.batch_axis >= 0 && port.batch_axis <= std::ssize(sample)) return;
  throw std::invalid_argument(
      fmt::format("[graph] {}: expected the batch as one of {} dimensions, got dimension {}",
                  printable(port.name), sample.size() + 1, port.batch_axis));
}

// A file of several inputs has no tensor that holds all of them.
void validate_input_ports(const Graph& graph) {
  validate_port(graph.input_port, graph.values[graph.input].shape);
  for (const PartPort& input : graph.input_ports) validate_port(input.port, input.shape);
  for (const Node& node : graph.nodes) {
    const bool reads = std::count(node.inputs.begin(), node.inputs.end(), graph.input) > 0;
    const bool known =
        !reads || graph.input_ports.empty() ||
        std::any_of(graph.input_ports.begin(), graph.input_ports.end(), [&](const PartPort& input) {
          const auto* part = std::get_if<PartOfInput>(&node.options);
          return part != nullptr && part->first[0] == input.first && part->shape == input.shape;
        });
    expect(known, node, "reads other than one of the model's inputs");
  }
}

// Those of a file are as the last node has them, one after another.
void validate_output_ports(const Graph& graph) {
  validate_port(graph.output_port, graph.values[graph.output].shape);
  for (const PartPort& output : graph.output_ports) validate_port(output.port, output.shape);
  if (graph.output_ports.empty()) return;
  const bool joins = !graph.nodes.empty() && graph.nodes.back().op == Op::kOutputParts;
  const std::size_t count = joins ? graph.nodes.back().inputs.size() : 0;
  if (graph.output_ports.size() != count) {
    throw std::invalid_argument(
        fmt::format("[graph] expected the {} outputs that its last node joins, got {}", count,
                    graph.output_ports.size()));
  }
  const Node& node = graph.nodes.back();
  std::int64_t first = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const PartPort& output = graph.output_ports[i];
    const Shape& shape = graph.values[node.inputs[i]].shape;
    expect(output.first == first && output.shape == shape, node,
           fmt::format("expected the output {} {} from value {} on, got {} from {} on", i + 1,
                       shape_string(shape), first, shape_string(output.shape), output.first));
    first += shape_size(shape);
  }
}

}  // namespace

void validate(const Graph& graph) {
  if (graph.input >= graph.values.size() || graph.output >= graph.values.size()) {
    throw std::invalid_argument("[graph] its input or output is not one of its values");
  }
  if (graph.values[graph.input].quantization) {
    throw std::invalid_argument("[graph] its input must be f32");
  }
  for (const Value& value : graph.values) validate_shape(value);
  validate(graph.preprocessing, graph.values[graph.input].shape);
  std::vector<bool> made(graph.values.size(), false);
  made[graph.input] = true;
  for (const Node& node : graph.nodes) {
    const OpInfo& info = op_info(node.op);
    validate_operands(node);
    for (const std::size_t input : node.inputs) {
      expect(input < made.size() && made[input], node, "reads a value that no node made before");
    }
    expect(node.output < made.size() && !made[node.output], node,
           "its output is made by another node");
    expect(node.options.index() == info.options.index(), node,
           "has the options of another operation");
    expect(node.weights ? info.has_weights || info.may_have_weights : !info.has_weights, node,
           "weights belong to linear, conv2d, conv_transpose2d, embedding and fixed_lstm");
    expect(node.recurrent.has_value() == info.has_recurrent, node,
           "recurrent weights belong to fixed_lstm");
    require_weights(node);
    expect(node.activation == kernels::Activation::kNone || info.fuses_activation, node,
           "has no fused activation");
    expect(node.activation == kernels::Activation::kNone ||
               graph.values[node.output].quantization.has_value(),
           node, "a fused activation is a clamp of codes, its output is float");
    validate_extents(node);
    validate_quantization(graph, node);
    const Shape shape = info.shape(graph, node);
    expect(shape == graph.values[node.output].shape, node,
           "expected the output " + shape_string(shape) + ", got " +
               shape_string(graph.values[node.output].shape));
    made[node.output] = true;
  }
  validate_input_ports(graph);
  validate_output_ports(graph);
  if (!made[graph.output]) throw std::invalid_argument("[graph] no node makes its output");
}

namespace {

// Without the bias.
std::int64_t weight_bytes(const Weights& w) {
  const int bits = w.has_codes() ? stored_bits(w.bits) : 32;
  return (w.weight.size() * bits + 7) / 8 +
         static_cast<std::int64_t>(w.scales.size() * sizeof(float) + w.zero_points.size());
}

}  // namespace

std::int64_t parameter_bytes(const Graph& graph) {
  std::int64_t bytes = 0;
  for (const Node& node : graph.nodes) {
    for (const Constant& constant : node.constants) bytes += constant.value.bytes();
    if (node.recurrent) bytes += weight_bytes(*node.recurrent);
    if (!node.weights || home_of_weights(graph, node) != node.name) continue;
    const Weights& w = *node.weights;
    if (w.bias.defined()) bytes += w.bias.bytes();
    if (&graph.nodes[home_of_weight(graph, node)] == &node) bytes += weight_bytes(w);
  }
  return bytes;
}

}  // namespace steelyard::deploy
