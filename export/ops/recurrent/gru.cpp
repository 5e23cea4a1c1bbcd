// Gated recurrent unit over a sequence, in float.
#include <algorithm>

#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/recurrent/first_state.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/runtime/ops/recurrent.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

using enum gru::Operand;

void read(const Function& function, Node& node) { node.options = described<GruOptions>(function); }

// ONNX's runs over [L, N, I], for one direction here, and gives [L, 1, N, H].
void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  OnnxGraph& onnx = nodes.onnx();
  const std::int64_t units = recurrent_units(node);
  const auto initializer = [&](const char* name, std::size_t place) {
    const Tensor& value = *constant_at(node, place);
    Shape shape = value.shape();
    shape.insert(shape.begin(), 1);
    return onnx.floats(node.name + "/" + name, value.span<float>(), shape);
  };
  // Those of both products, three gates each.
  std::vector<float> bias(static_cast<std::size_t>(6 * units), 0.0F);
  const auto own = constant_at(node, kBias)->span<float>();
  const auto recurrent = constant_at(node, kRecurrentBias)->span<float>();
  std::copy(own.begin(), own.end(), bias.begin());
  std::copy(recurrent.begin(), recurrent.end(), bias.end() - static_cast<std::ptrdiff_t>(units));
  const std::vector<std::int64_t> steps_first{1, 0, 2};
  const std::string in = node.name + "/steps";
  onnx.add("Transpose", {nodes.input(node)}, in, {{"perm", steps_first}});
  std::vector<std::string> inputs{in, initializer("weight", kWeight),
                                  initializer("recurrent_weight", kRecurrent),
                                  onnx.floats(node.name + "/bias", bias, {1, 6 * units})};
  const Tensor& first = *constant_at(node, kOutput);
  const auto values = first.span<float>();
  if (!std::all_of(values.begin(), values.end(), [](float v) { return v == 0; })) {
    inputs.emplace_back("");
    inputs.push_back(first_state(nodes, node, "first_output", first, in));
  }
  const std::string y = node.name + "/y", outputs = node.name + "/outputs";
  onnx.add("GRU", inputs, y,
           {{"hidden_size", units},
            {"linear_before_reset", std::int64_t{1}},
            {"direction", std::string(node.as<GruOptions>().reverse ? "reverse" : "forward")}});
  const std::string one = onnx.int64s(node.name + "/direction", std::vector<std::int64_t>{1}, {1});
  onnx.add("Squeeze", {y, one}, outputs);
  onnx.add("Transpose", {outputs}, output, {{"perm", steps_first}});
}

}  // namespace

OpForm gru_form() {
  return {.op = Op::kGru,
          .recorded = {"gru"},
          .read = read,
          .onnx = onnx,
          .onnx_order = OnnxOrder::kAsHere};
}

}  // namespace steelyard::deploy
