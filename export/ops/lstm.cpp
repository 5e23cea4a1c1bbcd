// Long short-term memory over a sequence, in float.
#include <algorithm>
#include <cmath>

#include "steelyard/export/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/ops/support.h"
#include "steelyard/framework/ops/products/lstm.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard::deploy {
namespace {

// The places of its operands.
enum : std::size_t { kInput, kWeight, kRecurrent, kBias, kOutput, kCell, kOperands };

std::int64_t units_of(const Node& node) { return constant_at(node, kRecurrent)->dim(1); }

void read(const Function& function, Node& node) {
  const auto options = described<LstmOptions>(function);
  node.options = options;
}

Shape shape(const Graph& graph, const Node& node) {
  const Shape& in = graph.values[node.inputs[0]].shape;
  expect(in.size() == 2 && in[0] >= 1, node, "expected a sequence [L, I], got " + shape_string(in));
  const Tensor* recurrent = constant_at(node, kRecurrent);
  expect(
      recurrent != nullptr && recurrent->rank() == 2 && recurrent->dim(0) == 4 * recurrent->dim(1),
      node, "expected constant recurrent weights [4 H, H]");
  const std::int64_t units = recurrent->dim(1);
  const Shape shapes[] = {{},     {4 * units, in[1]}, {4 * units, units}, {4 * units}, {units},
                          {units}};
  for (std::size_t place = kWeight; place < kOperands; ++place) {
    const Tensor* constant = constant_at(node, place);
    expect(constant != nullptr && constant->shape() == shapes[place], node,
           "expected a constant " + shape_string(shapes[place]) + " as operand " +
               std::to_string(place));
  }
  return {in[0] + (node.as<LstmOptions>().final_cell ? 1 : 0), units};
}

void check(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization, node, "is computed in float");
}

void reference(const Operands& op) {
  const Tensor x = real_operand(op, kInput);
  const Node& node = op.node;
  const std::int64_t length = x.dim(1), features = x.dim(2), units = units_of(node);
  const auto constant = [&](std::size_t place) { return constant_at(node, place)->data<float>(); };
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  const std::int64_t rows = op.output().dim(1);
#pragma omp parallel for
  for (std::int64_t n = 0; n < x.dim(0); ++n) {
    std::vector<float> h(constant(kOutput), constant(kOutput) + units), next(h);
    std::vector<float> c(constant(kCell), constant(kCell) + units);
    float* y = op.output().data<float>() + n * rows * units;
    for (std::int64_t step = 0; step < length; ++step) {
      const std::int64_t t = node.as<LstmOptions>().reverse ? length - 1 - step : step;
      const float* in = x.data<float>() + (n * length + t) * features;
      for (std::int64_t j = 0; j < units; ++j) {
        double sums[4];
        for (std::int64_t gate = 0; gate < 4; ++gate) {
          const std::int64_t row = gate * units + j;
          sums[gate] = dot(constant(kWeight) + row * features, in, features) +
                       dot(constant(kRecurrent) + row * units, h.data(), units) +
                       double{constant(kBias)[row]};
        }
        const auto at = static_cast<std::size_t>(j);
        c[at] = static_cast<float>(sigmoid(sums[2]) * double{c[at]} +
                                   sigmoid(sums[0]) * std::tanh(sums[3]));
        next[at] = static_cast<float>(sigmoid(sums[1]) * std::tanh(double{c[at]}));
      }
      h = next;
      std::copy(h.begin(), h.end(), y + t * units);
    }
    if (node.as<LstmOptions>().final_cell) std::copy(c.begin(), c.end(), y + length * units);
  }
}

// ONNX's runs over [L, N, I], for one direction here, and gives [L, 1, N, H].
void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  OnnxGraph& onnx = nodes.onnx();
  const std::int64_t units = units_of(node);
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

OpInfo lstm_op() {
  return {.op = Op::kLstm,
          .name = "lstm",
          .recorded = {"lstm"},
          .inputs = kOperands,
          .takes_constants = true,
          .rounds_floats = true,
          .options = LstmOptions{},
          .graph_version = 6,
          .read = read,
          .shape = shape,
          .check = check,
          .reference = reference,
          .onnx = onnx,
          .onnx_order = OnnxOrder::kAsHere};
}

}  // namespace steelyard::deploy
