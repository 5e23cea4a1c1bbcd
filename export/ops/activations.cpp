// Sigmoid, tanh, SiLU, hardswish, hard sigmoid, GELU, leaky ReLU and affine maps. Of codes: a table
// with an entry for each of the 256 input codes.
#include <cmath>
#include <functional>
#include <vector>

#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/fixed_activations.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/runtime/ops/activations.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

using Onnx = void (*)(OnnxNodes&, const Node&, const std::string&);

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
bool is_safe_in_float(const Quantization& in, const Quantization& out, const ActivationTable& table,
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
void add_lookup(OnnxNodes& nodes, const Node& node, const ActivationTable& table,
                const std::string& output) {
  const Value& in = nodes.graph().values[node.inputs[0]];
  const Quantization& q = *nodes.graph().values[node.output].quantization;
  const kernels::CodeGrid<float> grid = grid_of(q);
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
void write(OnnxNodes& nodes, const Node& node, const std::string& output, const FloatError& error,
           const Write& in_float) {
  const auto& out = nodes.graph().values[node.output].quantization;
  if (out) {
    const Quantization& in = *nodes.graph().values[node.inputs[0]].quantization;
    const ActivationTable table = table_of(in, formula_of(node));
    if (!is_safe_in_float(in, *out, table, error)) {
      return add_lookup(nodes, node, table, output);
    }
  }
  in_float();
}

void sigmoid_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  write(nodes, node, output, exact_at_zero(),
        [&] { nodes.onnx().add("Sigmoid", {nodes.input(node)}, output); });
}

void silu_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  write(nodes, node, output, exact_at_zero(), [&] {
    const std::string gate = node.name + "/gate";
    nodes.onnx().add("Sigmoid", {nodes.input(node)}, gate);
    nodes.onnx().add("Mul", {nodes.input(node), gate}, output);
  });
}

// x * HardSigmoid(x): HardSwish came with opset 14.
void hardswish_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  write(nodes, node, output,
        {.is_exact = [](float x) { return x == 0 || x <= -3.0001F || x >= 3.0001F; }}, [&] {
          const std::string gate = node.name + "/gate";
          nodes.onnx().add("HardSigmoid", {nodes.input(node)}, gate,
                           {{"alpha", 1.0F / 6.0F}, {"beta", 0.5F}});
          nodes.onnx().add("Mul", {nodes.input(node), gate}, output);
        });
}

void tanh_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  write(nodes, node, output, exact_at_zero(),
        [&] { nodes.onnx().add("Tanh", {nodes.input(node)}, output); });
}

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
  write(nodes, node, output, exact_at_zero(), in_float);
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
  write(nodes, node, output, exact_at_zero(), in_float);
}

Formula terms_of(const kernels::Ramp& ramp) {
  return [ramp](double x) { return std::abs(ramp.slope * x) + std::abs(ramp.offset); };
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
  write(nodes, node, output, {.cancelled = terms_of(node.as<kernels::Ramp>())}, in_float);
}

void leaky_relu_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  write(nodes, node, output, {.is_exact = [](float x) { return x >= 0; }}, [&] {
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

void hard_sigmoid_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const kernels::Ramp ramp = node.as<kernels::Ramp>();
  const auto flat = [ramp](float x) {
    constexpr double kMargin = 1e-4;
    const double line = ramp.slope * static_cast<double>(x) + ramp.offset;
    return line <= -kMargin || line >= 1 + kMargin;
  };
  const FloatError error{.is_exact = flat, .cancelled = terms_of(ramp)};
  write(nodes, node, output, error, [&] {
    nodes.onnx().add(
        "HardSigmoid", {nodes.input(node)}, output,
        {{"alpha", static_cast<float>(ramp.slope)}, {"beta", static_cast<float>(ramp.offset)}});
  });
}

// The row of a function without options, of which the recorded operations are the float and the
// integer one.
OpForm form(Op op, std::vector<std::string_view> recorded, Onnx onnx) {
  return {.op = op, .recorded = std::move(recorded), .in_c_header = true, .onnx = onnx};
}

}  // namespace

OpForm hard_sigmoid_form() {
  return {.op = Op::kHardSigmoid,
          .recorded = {"quantized_hard_sigmoid", "hard_sigmoid"},
          .in_c_header = true,
          .read = read_ramp,
          .onnx = hard_sigmoid_onnx};
}

OpForm affine_form() {
  return {.op = Op::kAffine,
          .recorded = {"quantized_affine", "affine"},
          .read = read_ramp,
          .onnx = affine_onnx};
}

OpForm leaky_relu_form() {
  return with_fixed_activation({.op = Op::kLeakyRelu,
                                .recorded = {"quantized_leaky_relu", "leaky_relu"},
                                .in_c_header = true,
                                .read = read_slope,
                                .onnx = leaky_relu_onnx});
}

OpForm gelu_form() { return form(Op::kGelu, {"gelu", "quantized_gelu"}, gelu_onnx); }

OpForm tanh_gelu_form() {
  return form(Op::kTanhGelu, {"tanh_gelu", "quantized_tanh_gelu"}, tanh_gelu_onnx);
}

OpForm sigmoid_form() {
  return with_fixed_activation(form(Op::kSigmoid, {"sigmoid", "quantized_sigmoid"}, sigmoid_onnx));
}

OpForm silu_form() { return form(Op::kSilu, {"silu", "quantized_silu"}, silu_onnx); }

OpForm tanh_form() {
  return with_fixed_activation(
      {.op = Op::kTanh, .recorded = {"tanh", "quantized_tanh"}, .onnx = tanh_onnx});
}

OpForm hardswish_form() {
  return with_fixed_activation(
      form(Op::kHardswish, {"hardswish", "quantized_hardswish"}, hardswish_onnx));
}

}  // namespace steelyard::deploy
