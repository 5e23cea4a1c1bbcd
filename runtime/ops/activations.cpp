// Sigmoid, tanh, SiLU, hardswish, hard sigmoid, GELU, leaky ReLU and affine maps. Of codes: a table
// with an entry for each of the 256 input codes.
#include "steelyard/runtime/ops/activations.h"

#include <cmath>

#include "steelyard/runtime/ops/fixed_activations.h"
#include "steelyard/runtime/ops/rows.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double silu(double x) { return x * sigmoid(x); }

double hardswish(double x) {
  if (x <= -3) return 0;
  return x >= 3 ? x : x * (x + 3) / 6;
}

Formula hard_sigmoid_of(const Node& node) {
  return [ramp = node.as<kernels::Ramp>()](double x) { return kernels::hard_sigmoid(x, ramp); };
}

double hyperbolic_tangent(double x) { return std::tanh(x); }

double gelu(double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); }

double tanh_gelu(double x) {
  return x * sigmoid(2 * kGeluFactor * (x + 0.044715 * x * x * x));  // without cancellation
}

Formula affine_of(const Node& node) {
  return [ramp = node.as<kernels::Ramp>()](double x) { return ramp.slope * x + ramp.offset; };
}

// With a slope as float runtimes have it: of two floats a product in double is exact.
Formula leaky_relu_of(const Node& node) {
  const auto slope = static_cast<double>(static_cast<float>(node.as<NegativeSlope>().slope));
  return [slope](double x) { return x > 0 ? x : slope * x; };
}

}  // namespace

Formula formula_of(const Node& node) {
  switch (node.op) {
    case Op::kSigmoid:
      return sigmoid;
    case Op::kTanh:
      return hyperbolic_tangent;
    case Op::kSilu:
      return silu;
    case Op::kHardswish:
      return hardswish;
    case Op::kHardSigmoid:
      return hard_sigmoid_of(node);
    case Op::kGelu:
      return gelu;
    case Op::kTanhGelu:
      return tanh_gelu;
    case Op::kLeakyRelu:
      return leaky_relu_of(node);
    case Op::kAffine:
      return affine_of(node);
    default:
      fail(node, "is no activation");
  }
}

float real_of(const Quantization& q, int byte) {
  const int code = q.dtype == DType::kI8 ? static_cast<std::int8_t>(byte) : byte;
  return kernels::dequantize_code(static_cast<float>(code), static_cast<float>(q.zero_point),
                                  q.scale);
}

ActivationTable table_of(const Quantization& in, const Formula& formula) {
  ActivationTable table{};
  for (int byte = 0; byte < 256; ++byte) {
    table[static_cast<std::size_t>(byte)] =
        static_cast<float>(formula(static_cast<double>(real_of(in, byte))));
  }
  return table;
}

namespace {

void activate(const Operands& op) {
  const Formula formula = formula_of(op.node);
  if (!op.output_value().quantization) {
    const Tensor x = real_operand(op, 0);
    fill_floats(op.output(), [&](std::int64_t i) {
      return static_cast<float>(formula(static_cast<double>(x.data<float>()[i])));
    });
    return;
  }
  if (op.output_value().quantization->fixed_point()) return fixed_activate(op);
  const ActivationTable table = table_of(*op.input_value(0).quantization, formula);
  const kernels::CodeGrid<float> grid = grid_of(*op.output_value().quantization);
  const auto* bytes = static_cast<const std::uint8_t*>(op.input(0).raw());
  fill_codes(op.output(),
             [&](std::int64_t i) { return kernels::quantize_value(table[bytes[i]], grid); });
}

Shape shape(const Graph& graph, const Node& node) { return graph.values[node.inputs[0]].shape; }

void check(const Graph& graph, const Node& node) {
  if (!graph.values[node.output].quantization) return;
  expect(graph.values[node.inputs[0]].quantization.has_value(), node, "codes are made of codes");
  require_bytes(graph, node);
  if (graph.values[node.output].quantization->fixed_point()) check_fixed_activation(graph, node);
}

void check_slope(const Graph& graph, const Node& node) {
  check(graph, node);
  expect(std::isfinite(node.as<NegativeSlope>().slope), node, "expected a finite slope");
}

void check_ramp(const Graph& graph, const Node& node) {
  check(graph, node);
  const kernels::Ramp& ramp = node.as<kernels::Ramp>();
  expect(std::isfinite(ramp.slope) && std::isfinite(ramp.offset), node,
         "expected a finite slope and offset");
}

// Files knew the operation of floats before that of codes.
template <int version>
int version_of_codes(const Graph& graph, const Node& node) {
  return graph.values[node.output].quantization ? version : 0;
}

// The row of a function without options.
OpInfo row(Op op, const char* name, GraphVersion version) {
  return {.op = op,
          .name = name,
          .rounds_floats = true,
          .graph_version = version,
          .shape = shape,
          .check = check,
          .reference = activate,
          .fast = map_bytes};
}

// What is computed in fixed point, too.
OpInfo with_fixed_point(OpInfo info) {
  info.fixed_point = true;
  return info;
}

}  // namespace

OpInfo hard_sigmoid_op() {
  return {.op = Op::kHardSigmoid,
          .name = "hard_sigmoid",
          .rounds_floats = true,
          .options = kernels::Ramp{},
          .graph_version = 4,
          .shape = shape,
          .check = check_ramp,
          .reference = activate,
          .fast = map_bytes};
}

OpInfo affine_op() {
  return {.op = Op::kAffine,
          .name = "affine",
          .rounds_floats = true,
          .options = kernels::Ramp{},
          .graph_version = 5,
          .shape = shape,
          .check = check_ramp,
          .reference = activate,
          .fast = map_bytes};
}

OpInfo leaky_relu_op() {
  return {.op = Op::kLeakyRelu,
          .name = "leaky_relu",
          .fixed_point = true,
          .options = NegativeSlope{},
          .graph_version = 5,
          .later_version = version_of_codes<8>,
          .shape = shape,
          .check = check_slope,
          .reference = activate,
          .fast = map_bytes};
}

OpInfo gelu_op() { return row(Op::kGelu, "gelu", 5); }

OpInfo tanh_gelu_op() { return row(Op::kTanhGelu, "tanh_gelu", 5); }

OpInfo sigmoid_op() { return with_fixed_point(row(Op::kSigmoid, "sigmoid", 1)); }

OpInfo silu_op() { return row(Op::kSilu, "silu", 4); }

OpInfo tanh_op() {
  OpInfo info = with_fixed_point(row(Op::kTanh, "tanh", 5));
  info.later_version = version_of_codes<11>;
  return info;
}

OpInfo hardswish_op() { return with_fixed_point(row(Op::kHardswish, "hardswish", 1)); }

}  // namespace steelyard::deploy
