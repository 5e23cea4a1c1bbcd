// Sigmoid, tanh, SiLU, hardswish, hard sigmoid, GELU, leaky ReLU and affine maps. Of codes: a table
// with an entry for each of the 256 input codes.
#include <array>
#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

#include "steelyard/export/onnx_nodes.h"
#include "steelyard/export/ops/fixed_activations.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/ops/support.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard::deploy {
namespace {

using Formula = std::function<double(double)>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double silu(double x) { return x * sigmoid(x); }

double hardswish(double x) {
  if (x <= -3) return 0;
  return x >= 3 ? x : x * (x + 3) / 6;
}

Formula hard_sigmoid_of(const Node& node) {
  return [ramp = node.as<kernels::Ramp>()](double x) { return kernels::hard_sigmoid(x, ramp); };
}

Shape shape(const Graph& graph, const Node& node) { return graph.values[node.inputs[0]].shape; }

void check(const Graph& graph, const Node& node) {
  if (!graph.values[node.output].quantization) return;
  expect(graph.values[node.inputs[0]].quantization.has_value(), node, "codes are made of codes");
  require_bytes(graph, node);
  if (graph.values[node.output].quantization->fixed_point()) check_fixed_activation(graph, node);
}

// The real value that a byte stands for as a code.
float real_of(const Quantization& q, int byte) {
  const int code = q.dtype == DType::kI8 ? static_cast<std::int8_t>(byte) : byte;
  return kernels::dequantize_code(static_cast<float>(code), static_cast<float>(q.zero_point),
                                  q.scale);
}

using Table = std::array<float, 256>;

// The function's value for every byte, rounded once from double.
Table table_of(const Quantization& in, const Formula& formula) {
  Table table{};
  for (int byte = 0; byte < 256; ++byte) {
    table[static_cast<std::size_t>(byte)] =
        static_cast<float>(formula(static_cast<double>(real_of(in, byte))));
  }
  return table;
}

void activate(const Operands& op, const Formula& formula) {
  if (!op.output_value().quantization) {
    const Tensor x = real_operand(op, 0);
    fill_floats(op.output(), [&](std::int64_t i) {
      return static_cast<float>(formula(static_cast<double>(x.data<float>()[i])));
    });
    return;
  }
  if (op.output_value().quantization->fixed_point()) return fixed_activate(op);
  const Table table = table_of(*op.input_value(0).quantization, formula);
  const kernels::Affine<float> grid = grid_of(*op.output_value().quantization);
  const auto* bytes = static_cast<const std::uint8_t*>(op.input(0).raw());
  fill_codes(op.output(),
             [&](std::int64_t i) { return kernels::quantize_value(table[bytes[i]], grid); });
}

// What a float runtime may be off by in the function's value: nothing where its floats are exact.
// `cancelled` is the magnitude of terms that it rounds and that may be much larger than their sum.
struct FloatError {
  std::function<bool(float)> is_exact = [](float) { return false; };
  Formula cancelled = [](double) { return 0.0; };
};

FloatError exact_at_zero() {
  return {.is_exact = [](float x) { return x == 0; }};
}

// Whether a float runtime gives the same code for every input despite rounding: no value lies close
// to the border between two codes.
bool is_safe_in_float(const Quantization& in, const Quantization& out, const Table& table,
                      const FloatError& error) {
  constexpr double kMargin = 1e-4;  // of a code
  constexpr double kRounding = 0x1p-22;
  for (int byte = 0; byte < 256; ++byte) {
    const float x = real_of(in, byte);
    if (error.is_exact(x)) continue;
    const double steps = double{table[static_cast<std::size_t>(byte)]} / double{out.scale};
    const double rounded = error.cancelled(double{x}) * kRounding / double{out.scale};
    if (std::abs(steps - std::floor(steps) - 0.5) < kMargin + rounded) return false;
  }
  return true;
}

// The values of the output's codes, looked up by the input's: exact in any runtime.
void add_lookup(OnnxNodes& nodes, const Node& node, const Table& table, const std::string& output) {
  const Value& in = nodes.graph().values[node.inputs[0]];
  const Quantization& q = *nodes.graph().values[node.output].quantization;
  const kernels::Affine<float> grid = grid_of(q);
  const std::int8_t shift =
      static_cast<std::int8_t>(nodes.stored_zero_point(*in.quantization) -
                               static_cast<std::int8_t>(in.quantization->zero_point));
  std::vector<float> values(256);
  for (int byte = 0; byte < 256; ++byte) {
    const auto code =
        static_cast<float>(kernels::quantize_value(table[static_cast<std::size_t>(byte)], grid));
    values[static_cast<std::uint8_t>(byte + shift)] =
        kernels::dequantize_code(code, static_cast<float>(q.zero_point), q.scale);
  }
  OnnxGraph& onnx = nodes.onnx();
  constexpr std::int64_t kOnnxInt32 = 6;
  onnx.add("Cast", {in.name + "/codes"}, node.name + "/index", {{"to", kOnnxInt32}});
  onnx.add("Gather", {onnx.floats(node.name + "/table", values, {256}), node.name + "/index"},
           output, {{"axis", std::int64_t{0}}});
}

// Writes ONNX's float operation if it gives the same codes, else the table.
template <typename Write>
void write(OnnxNodes& nodes, const Node& node, const std::string& output, const Formula& formula,
           const FloatError& error, const Write& in_float) {
  const auto& out = nodes.graph().values[node.output].quantization;
  if (out) {
    const Quantization& in = *nodes.graph().values[node.inputs[0]].quantization;
    const Table table = table_of(in, formula);
    if (!is_safe_in_float(in, *out, table, error)) {
      return add_lookup(nodes, node, table, output);
    }
  }
  in_float();
}

void sigmoid_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  write(nodes, node, output, sigmoid, exact_at_zero(),
        [&] { nodes.onnx().add("Sigmoid", {nodes.input(node)}, output); });
}

void silu_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  write(nodes, node, output, silu, exact_at_zero(), [&] {
    const std::string gate = node.name + "/gate";
    nodes.onnx().add("Sigmoid", {nodes.input(node)}, gate);
    nodes.onnx().add("Mul", {nodes.input(node), gate}, output);
  });
}

// x * HardSigmoid(x): HardSwish came with opset 14.
void hardswish_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  write(nodes, node, output, hardswish,
        {.is_exact = [](float x) { return x == 0 || x <= -3.0001F || x >= 3.0001F; }}, [&] {
          const std::string gate = node.name + "/gate";
          nodes.onnx().add("HardSigmoid", {nodes.input(node)}, gate,
                           {{"alpha", 1.0F / 6.0F}, {"beta", 0.5F}});
          nodes.onnx().add("Mul", {nodes.input(node), gate}, output);
        });
}

double hyperbolic_tangent(double x) { return std::tanh(x); }

void tanh_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  write(nodes, node, output, hyperbolic_tangent, exact_at_zero(),
        [&] { nodes.onnx().add("Tanh", {nodes.input(node)}, output); });
}

double gelu(double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); }

// x / 2 * (1 + Erf(x / sqrt(2))): Gelu came with opset 20.
void gelu_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const auto in_float = [&] {
    OnnxGraph& onnx = nodes.onnx();
    const std::string x = nodes.input(node), name = node.name;
    const auto number = [&](const char* what, float value) {
      return onnx.floats(name + what, {&value, 1}, {});
    };
    onnx.add("Mul", {x, number("/factor", static_cast<float>(std::sqrt(0.5)))}, name + "/scaled");
    onnx.add("Erf", {name + "/scaled"}, name + "/erf");
    onnx.add("Add", {name + "/erf", number("/one", 1)}, name + "/gate");
    onnx.add("Mul", {x, name + "/gate"}, name + "/twice");
    onnx.add("Mul", {name + "/twice", number("/half", 0.5F)}, output);
  };
  write(nodes, node, output, gelu, exact_at_zero(), in_float);
}

const double kGeluFactor = std::sqrt(2 / std::numbers::pi);
double tanh_gelu(double x) {
  return x * sigmoid(2 * kGeluFactor * (x + 0.044715 * x * x * x));  // without cancellation
}

// By the formula: Gelu came with opset 20.
void tanh_gelu_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const auto in_float = [&] {
    OnnxGraph& onnx = nodes.onnx();
    const std::string x = nodes.input(node), name = node.name;
    const auto number = [&](const char* what, double value) {
      const auto real = static_cast<float>(value);
      return onnx.floats(name + what, {&real, 1}, {});
    };
    onnx.add("Mul", {x, x}, name + "/square");
    onnx.add("Mul", {name + "/square", number("/cubic_factor", 0.044715)}, name + "/scaled");
    onnx.add("Add", {name + "/scaled", number("/one", 1)}, name + "/factor");
    onnx.add("Mul", {x, name + "/factor"}, name + "/sum");
    onnx.add("Mul", {name + "/sum", number("/tanh_factor", kGeluFactor)}, name + "/argument");
    onnx.add("Tanh", {name + "/argument"}, name + "/tanh");
    onnx.add("Add", {name + "/tanh", name + "/one"}, name + "/gate");
    onnx.add("Mul", {x, name + "/gate"}, name + "/twice");
    onnx.add("Mul", {name + "/twice", number("/half", 0.5)}, output);
  };
  write(nodes, node, output, tanh_gelu, exact_at_zero(), in_float);
}

Formula terms_of(const kernels::Ramp& ramp) {
  return [ramp](double x) { return std::abs(ramp.slope * x) + std::abs(ramp.offset); };
}

Formula affine_of(const Node& node) {
  return [ramp = node.as<kernels::Ramp>()](double x) { return ramp.slope * x + ramp.offset; };
}

void affine_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const auto in_float = [&] {
    const auto number = [&](const char* name, double value) {
      const auto as_float = static_cast<float>(value);
      return nodes.onnx().floats(node.name + name, {&as_float, 1}, {});
    };
    const kernels::Ramp& ramp = node.as<kernels::Ramp>();
    const bool shifts = ramp.offset != 0;
    const std::string scaled = shifts ? node.name + "/scaled" : output;
    nodes.onnx().add("Mul", {nodes.input(node), number("/slope", ramp.slope)}, scaled);
    if (shifts) nodes.onnx().add("Add", {scaled, number("/offset", ramp.offset)}, output);
  };
  write(nodes, node, output, affine_of(node), {.cancelled = terms_of(node.as<kernels::Ramp>())},
        in_float);
}

// With a slope as float runtimes have it: of two floats a product in double is exact.
Formula leaky_relu_of(const Node& node) {
  const auto slope = static_cast<double>(static_cast<float>(node.as<NegativeSlope>().slope));
  return [slope](double x) { return x > 0 ? x : slope * x; };
}

void leaky_relu_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  write(nodes, node, output, leaky_relu_of(node), {.is_exact = [](float x) { return x >= 0; }},
        [&] {
          nodes.onnx().add("LeakyRelu", {nodes.input(node)}, output,
                           {{"alpha", static_cast<float>(node.as<NegativeSlope>().slope)}});
        });
}

void read_ramp(const Function& function, Node& node) {
  node.options = described<kernels::Ramp>(function);
}

void read_slope(const Function& function, Node& node) {
  node.options = NegativeSlope{described<kernels::Ramp>(function).slope};
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

void hard_sigmoid_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const kernels::Ramp ramp = node.as<kernels::Ramp>();
  const auto flat = [ramp](float x) {
    constexpr double kMargin = 1e-4;
    const double line = ramp.slope * static_cast<double>(x) + ramp.offset;
    return line <= -kMargin || line >= 1 + kMargin;
  };
  const FloatError error{.is_exact = flat, .cancelled = terms_of(ramp)};
  write(nodes, node, output, hard_sigmoid_of(node), error, [&] {
    nodes.onnx().add(
        "HardSigmoid", {nodes.input(node)}, output,
        {{"alpha", static_cast<float>(ramp.slope)}, {"beta", static_cast<float>(ramp.offset)}});
  });
}

// Files knew the operation of floats before that of codes.
template <int version>
int version_of_codes(const Graph& graph, const Node& node) {
  return graph.values[node.output].quantization ? version : 0;
}

// The row of a function without options, named after the first of the recorded operations.
template <auto function>
OpInfo row(Op op, std::array<const char*, 2> recorded, GraphVersion version,
           void (*onnx)(OnnxNodes&, const Node&, const std::string&)) {
  return {.op = op,
          .name = recorded[0],
          .recorded = {recorded[0], recorded[1]},
          .rounds_floats = true,
          .graph_version = version,
          .in_c_header = true,
          .shape = shape,
          .check = check,
          .reference = [](const Operands& operands) { activate(operands, function); },
          .onnx = onnx};
}

}  // namespace

OpInfo hard_sigmoid_op() {
  return {.op = Op::kHardSigmoid,
          .name = "hard_sigmoid",
          .recorded = {"quantized_hard_sigmoid", "hard_sigmoid"},
          .rounds_floats = true,
          .options = kernels::Ramp{},
          .graph_version = 4,
          .in_c_header = true,
          .read = read_ramp,
          .shape = shape,
          .check = check_ramp,
          .reference = [](const Operands& op) { activate(op, hard_sigmoid_of(op.node)); },
          .onnx = hard_sigmoid_onnx};
}

OpInfo affine_op() {
  return {.op = Op::kAffine,
          .name = "affine",
          .recorded = {"quantized_affine", "affine"},
          .rounds_floats = true,
          .options = kernels::Ramp{},
          .graph_version = 5,
          .read = read_ramp,
          .shape = shape,
          .check = check_ramp,
          .reference = [](const Operands& op) { activate(op, affine_of(op.node)); },
          .onnx = affine_onnx};
}

OpInfo leaky_relu_op() {
  return with_fixed_activation(
      {.op = Op::kLeakyRelu,
       .name = "leaky_relu",
       .recorded = {"quantized_leaky_relu", "leaky_relu"},
       .options = NegativeSlope{},
       .graph_version = 5,
       .later_version = version_of_codes<8>,
       .in_c_header = true,
       .read = read_slope,
       .shape = shape,
       .check = check_slope,
       .reference = [](const Operands& op) { activate(op, leaky_relu_of(op.node)); },
       .onnx = leaky_relu_onnx});
}

OpInfo gelu_op() { return row<gelu>(Op::kGelu, {"gelu", "quantized_gelu"}, 5, gelu_onnx); }

OpInfo tanh_gelu_op() {
  return row<tanh_gelu>(Op::kTanhGelu, {"tanh_gelu", "quantized_tanh_gelu"}, 5, tanh_gelu_onnx);
}

OpInfo sigmoid_op() {
  return with_fixed_activation(
      row<sigmoid>(Op::kSigmoid, {"sigmoid", "quantized_sigmoid"}, 1, sigmoid_onnx));
}

OpInfo silu_op() { return row<silu>(Op::kSilu, {"silu", "quantized_silu"}, 4, silu_onnx); }

OpInfo tanh_op() {
  OpInfo info = row<hyperbolic_tangent>(Op::kTanh, {"tanh", "quantized_tanh"}, 5, tanh_onnx);
  info.in_c_header = false;
  info.later_version = version_of_codes<11>;
  return info;
}

OpInfo hardswish_op() {
  return with_fixed_activation(
      row<hardswish>(Op::kHardswish, {"hardswish", "quantized_hardswish"}, 1, hardswish_onnx));
}

}  // namespace steelyard::deploy
