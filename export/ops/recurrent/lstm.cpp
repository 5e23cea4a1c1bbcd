// Long short-term memory over a sequence, in float.
#include <algorithm>

#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/recurrent/first_state.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/runtime/ops/recurrent.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

using enum lstm::Operand;

void read(const Function& function, Node& node) {
  const auto options = described<LstmOptions>(function);
  node.options = options;
}

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
  std::vector<float> bias(static_cast<std::size_t>(8 * units), 0.0F);
  const auto own = constant_at(node, kBias)->span<float>();
  std::copy(own.begin(), own.end(), bias.begin());
  const std::vector<std::int64_t> steps_first{1, 0, 2};
  const std::string in = node.name + "/steps";
  onnx.add("Transpose", {nodes.input(node)}, in, {{"perm", steps_first}});
  std::vector<std::string> inputs{in, initializer("weight", kWeight),
                                  initializer("recurrent_weight", kRecurrent),
                                  onnx.floats(node.name + "/bias", bias, {1, 8 * units})};
  const auto is_zero = [&](std::size_t place) {
    const auto values = constant_at(node, place)->span<float>();
    return std::all_of(values.begin(), values.end(), [](float v) { return v == 0; });
  };
  if (!is_zero(kOutput) || !is_zero(kCell)) {
    inputs.emplace_back("");
    for (const auto& [name, place] :
         {std::pair{"first_output", kOutput}, std::pair{"first_cell", kCell}}) {
      inputs.push_back(first_state(nodes, node, name, *constant_at(node, place), in));
    }
  }
  const std::string y = node.name + "/y", outputs = node.name + "/outputs";
  const bool with_cell = node.as<LstmOptions>().final_cell;
  std::vector<std::string> made{y};
  if (with_cell) made = {y, "", node.name + "/y_c"};
  onnx.add_all(
      "LSTM", inputs, made,
      {{"hidden_size", units},
       {"direction", std::string(node.as<LstmOptions>().reverse ? "reverse" : "forward")}});
  const std::string one = onnx.int64s(node.name + "/direction", std::vector<std::int64_t>{1}, {1});
  onnx.add("Squeeze", {y, one}, outputs);
  const std::string rows = with_cell ? node.name + "/rows" : output;
  onnx.add("Transpose", {outputs}, rows, {{"perm", steps_first}});
  if (!with_cell) return;
  const std::string cell = node.name + "/cell";
  onnx.add("Transpose", {made[2]}, cell, {{"perm", steps_first}});
  onnx.add("Concat", {rows, cell}, output, {{"axis", std::int64_t{1}}});
}

}  // namespace

OpForm lstm_form() {
  return {.op = Op::kLstm,
          .recorded = {"lstm"},
          .read = read,
          .onnx = onnx,
          .onnx_order = OnnxOrder::kAsHere};
}

}  // namespace steelyard::deploy
