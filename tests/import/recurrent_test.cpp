// LSTM nodes as exporters write them: steps first, both directions, several layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/elementwise/unary.h"
#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/framework/ops/products/gru.h"
#include "steelyard/framework/ops/products/lstm.h"
#include "steelyard/layers/weighted/lstm.h"
#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using testing::all_close;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::Not;
using testing::random_tensor;

using Ints = std::vector<std::int64_t>;
constexpr std::int64_t kSteps = 5, kFeatures = 3, kUnits = 4;

// A node of both directions; its outputs are NAME, NAME_h and NAME_c.
std::string bidirectional(ModelMaker& m, const std::string& name, const std::string& x,
                          std::int64_t features) {
  m.node("LSTM",
         {x, m.weight(name + ".w", {2, 4 * kUnits, features}),
          m.weight(name + ".r", {2, 4 * kUnits, kUnits}), m.weight(name + ".b", {2, 8 * kUnits})},
         {{"hidden_size", kUnits}, {"direction", std::string("bidirectional")}});
  m.model().nodes.back().outputs = {name, name + "_h", name + "_c"};
  return name;
}

// The outputs of the LSTM computed by the operation, from the initializers.
Variable expected(const OnnxModel& model, const std::string& name, const Variable& x, bool cells) {
  std::vector<Variable> directions;
  for (const std::int64_t d : {0, 1}) {
    const auto part = [&](const char* end, const Shape& shape, std::int64_t first) {
      const std::vector<float>& all = model.initializers.at(name + end).reals;
      const auto begin = all.begin() + first;
      return Tensor::from(std::vector<float>(begin, begin + shape_size(shape)), shape);
    };
    const std::int64_t gates = 4 * kUnits, features = x.dim(2);
    const Variable bias = Variable(part(".b", {gates}, d * 2 * gates)) +
                          Variable(part(".b", {gates}, d * 2 * gates + gates));
    const Variable zero(Tensor::zeros({kUnits}));
    const LstmParameters parameters{
        .weight = Variable(part(".w", {gates, features}, d * gates * features)),
        .recurrent = Variable(part(".r", {gates, kUnits}, d * gates * kUnits)),
        .bias = bias,
        .output = zero,
        .cell = zero};
    directions.push_back(lstm(x, parameters, {.reverse = d == 1, .final_cell = cells}));
  }
  return concat(directions);
}

std::vector<OnnxDim> open_sequences() { return {{std::nullopt, "batch"}, {kSteps}, {kFeatures}}; }

// As PyTorch exports two layers with batch_first: the dimension of the batch goes to the front for
// each node's output alone, and no element moves between the layers.
TEST(Recurrent, LayersOfBothDirectionsNeedNoPermutation) {
  ModelMaker m(open_sequences());
  const auto joined = [&](const std::string& y) {  // [L, 2, N, H] to [L, N, 2 H]
    const std::string turned = m.node("Transpose", {y}, {{"perm", Ints{0, 2, 1, 3}}});
    return m.node("Reshape", {turned, m.integers({0, 0, -1})});
  };
  std::string y = m.node("Transpose", {"x"}, {{"perm", Ints{1, 0, 2}}});
  y = joined(bidirectional(m, "first", y, kFeatures));
  y = m.node("Tanh", {y});
  y = joined(bidirectional(m, "second", y, 2 * kUnits));
  const OnnxModel model = m.ending_in(m.node("Transpose", {y}, {{"perm", Ints{1, 0, 2}}}));
  const Imported imported = translate(model, {kSteps, kFeatures});
  EXPECT_THAT(types_of(imported), Not(Contains("Permute")));
  const Tensor x = random_tensor({2, kSteps, kFeatures}, 1, DType::kF32);
  const Variable between = tanh(expected(model, "first", Variable(x), false));
  EXPECT_TRUE(all_close(output_of(imported, x), expected(model, "second", between, false).value(),
                        1e-6, 1e-6));
  EXPECT_EQ(text_of(graph_from(text_of(imported.graph), "file")), text_of(imported.graph));
}

// A classifier reads the last outputs of both directions, and here the cells too.
TEST(Recurrent, TheLastStatesAreThoseOfEachDirection) {
  ModelMaker m(open_sequences());
  bidirectional(m, "rows", m.node("Transpose", {"x"}, {{"perm", Ints{1, 0, 2}}}), kFeatures);
  std::vector<std::string> parts;
  for (const char* state : {"rows_h", "rows_c"}) {
    for (const std::int64_t direction : {0, 1}) {
      m.model().initializers["at" + std::to_string(direction)] = {.shape = {},
                                                                  .integers = {{direction}}};
      parts.push_back(
          m.node("Gather", {state, "at" + std::to_string(direction)}, {{"axis", std::int64_t{0}}}));
    }
  }
  const OnnxModel model = m.ending_in(m.node("Concat", parts, {{"axis", std::int64_t{1}}}));
  const Imported imported = translate(model, {kSteps, kFeatures});
  EXPECT_THAT(types_of(imported), Not(Contains("Permute")));
  const Tensor x = random_tensor({2, kSteps, kFeatures}, 1, DType::kF32);
  const Tensor all = expected(model, "rows", Variable(x), true).value();  // [2, L + 1, 2 H]
  const Tensor y = output_of(imported, x);
  ASSERT_EQ(y.shape(), (Shape{2, 4 * kUnits}));
  for (std::int64_t n = 0; n < 2; ++n) {
    for (std::int64_t i = 0; i < 4 * kUnits; ++i) {
      const std::int64_t unit = i % (2 * kUnits), reverse = unit / kUnits;
      const std::int64_t row = i >= 2 * kUnits ? kSteps : reverse == 1 ? 0 : kSteps - 1;
      EXPECT_NEAR(y.data<float>()[n * 4 * kUnits + i],
                  all.data<float>()[(n * (kSteps + 1) + row) * 2 * kUnits + unit], 1e-6)
          << n << ", " << i;
    }
  }
}

// As PyTorch exports a layer with batch_first; the state before the first step is repeated for each
// sample.
TEST(Recurrent, AGruOfBothDirectionsIsTwoModules) {
  ModelMaker m(open_sequences());
  const std::string steps = m.node("Transpose", {"x"}, {{"perm", Ints{1, 0, 2}}});
  const std::string batch = m.node("Gather", {m.node("Shape", {"x"}), m.integers({0})});
  const std::string sizes =
      m.node("Concat", {m.integers({2}), batch, m.integers({kUnits})}, {{"axis", std::int64_t{0}}});
  const std::string first = m.node("Expand", {m.weight("h", {2, 1, kUnits}), sizes});
  m.node("GRU",
         {steps, m.weight("w", {2, 3 * kUnits, kFeatures}), m.weight("r", {2, 3 * kUnits, kUnits}),
          m.weight("b", {2, 6 * kUnits}), "", first},
         {{"linear_before_reset", std::int64_t{1}}, {"direction", std::string("bidirectional")}});
  m.model().nodes.back().outputs = {"y", "y_h"};
  const std::string turned = m.node("Transpose", {"y"}, {{"perm", Ints{2, 0, 1, 3}}});
  const OnnxModel model = m.ending_in(m.node("Reshape", {turned, m.integers({0, 0, -1})}));
  const Imported imported = translate(model, {kSteps, kFeatures});
  EXPECT_THAT(types_of(imported), Not(Contains("Permute")));
  const Tensor x = random_tensor({2, kSteps, kFeatures}, 1, DType::kF32);
  std::vector<Variable> directions;
  for (const std::int64_t d : {0, 1}) {
    const auto part = [&](const char* name, const Shape& shape, std::int64_t begin) {
      const auto first_of = model.initializers.at(name).reals.begin() + begin;
      return Variable(
          Tensor::from(std::vector<float>(first_of, first_of + shape_size(shape)), shape));
    };
    constexpr std::int64_t gates = 3 * kUnits;
    // The biases of two gates are added, those of the new state stand apart.
    const Tensor bias = part("b", {gates}, d * 2 * gates).value().clone();
    const Variable recurrent_bias = part("b", {gates}, d * 2 * gates + gates);
    for (std::int64_t i = 0; i < 2 * kUnits; ++i) {
      bias.data<float>()[i] += recurrent_bias.value().data<float>()[i];
    }
    directions.push_back(gru(
        Variable(x),
        {part("w", {gates, kFeatures}, d * gates * kFeatures),
         part("r", {gates, kUnits}, d * gates * kUnits), Variable(bias),
         part("b", {kUnits}, d * 2 * gates + gates + 2 * kUnits), part("h", {kUnits}, d * kUnits)},
        {.reverse = d == 1}));
  }
  EXPECT_TRUE(all_close(output_of(imported, x), concat(directions).value(), 1e-6, 1e-6));
}

TEST(Recurrent, AGruWhoseResetGateActsOnTheStateIsRefused) {
  ModelMaker m(open_sequences());
  const std::string y = m.node(
      "GRU",
      {"x", m.weight("w", {1, 3 * kUnits, kFeatures}), m.weight("r", {1, 3 * kUnits, kUnits})},
      {{"layout", std::int64_t{1}}});
  const OnnxModel model = m.ending_in(y);
  EXPECT_THAT(message_of<InputError>([&] {
                translate(model, {kSteps, kFeatures});
              }),
              HasSubstr("(GRU): linear_before_reset other than 1 is not supported"));
}

// A run that is continued prepares its model before it loads weights: the network says it.
TEST(Recurrent, SaysWhetherItBeginsAtZero) {
  for (const bool given : {false, true}) {
    ModelMaker m(open_sequences());
    std::vector<std::string> inputs{"x", m.weight("w", {1, 4 * kUnits, kFeatures}),
                                    m.weight("r", {1, 4 * kUnits, kUnits})};
    if (given) inputs.insert(inputs.end(), {"", "", m.weight("h", {1, 1, kUnits})});
    const std::string y = m.node("LSTM", inputs, {{"layout", std::int64_t{1}}});
    const Imported imported = translate(m.ending_in(y), {kSteps, kFeatures});
    const auto& nodes = imported.graph.nodes;
    const auto lstm = std::find_if(nodes.begin(), nodes.end(),
                                   [](const NodeSpec& node) { return node.type == "LSTM"; });
    ASSERT_NE(lstm, nodes.end());
    EXPECT_EQ(options_from<LstmLayerOptions>(lstm->options, kStoredLstm).begins_at_zero, !given);
  }
}

TEST(Recurrent, SaysWhatIsNotSupported) {
  const auto import = [](std::map<std::string, OnnxAttributeValue> attributes,
                         const std::vector<std::string>& more = {}) {
    ModelMaker m(open_sequences());
    std::vector<std::string> inputs{"x", m.weight("w", {1, 4 * kUnits, kFeatures}),
                                    m.weight("r", {1, 4 * kUnits, kUnits})};
    m.weight("p", {1, 3 * kUnits});
    inputs.insert(inputs.end(), more.begin(), more.end());
    attributes["layout"] = std::int64_t{1};
    const std::string y = m.node("LSTM", inputs, attributes);
    return translate(m.ending_in(y), {kSteps, kFeatures});
  };
  const auto refusal = [&](const std::map<std::string, OnnxAttributeValue>& attributes,
                           const std::vector<std::string>& more = {}) {
    return message_of<InputError>([&] { import(attributes, more); });
  };
  EXPECT_THAT(types_of(import({})), Contains("LSTM"));
  EXPECT_THAT(refusal({{"clip", 1.0F}}), HasSubstr("clip is not supported"));
  EXPECT_THAT(refusal({{"input_forget", std::int64_t{1}}}), HasSubstr("input_forget"));
  EXPECT_THAT(refusal({{"direction", std::string("up")}}), HasSubstr("direction: up"));
  EXPECT_THAT(refusal({{"activations", std::vector<std::string>{"Relu", "Tanh", "Tanh"}}}),
              HasSubstr("activations other than Sigmoid, Tanh, Tanh"));
  EXPECT_THAT(refusal({}, {"", "", "", "", "p"}), HasSubstr("peepholes are not supported"));
  EXPECT_THAT(refusal({}, {"p"}), HasSubstr("its bias: expected floats [1, 32], got [1, 12]"));
  EXPECT_THAT(refusal({}, {"", "", "x"}),
              HasSubstr("its state before the first step is computed, expected a constant"));
}

// A cell whose caller keeps its states: they are inputs, whose first dimension is the direction.
TEST(Recurrent, OneStepFromComputedStatesIsSpeltOut) {
  const auto model = [](std::int64_t steps) {
    ModelMaker m({{std::nullopt, "batch"}, {steps}, {kFeatures}});
    const std::vector<OnnxDim> state{{1}, {std::nullopt, "batch"}, {kUnits}};
    m.model().inputs.push_back({"h", "float", state});
    m.model().inputs.push_back({"c", "float", state});
    const std::string x = m.node("Transpose", {"x"}, {{"perm", Ints{1, 0, 2}}});
    m.node("LSTM", {x, m.weight("cell.w", {1, 4 * kUnits, kFeatures}),
                    m.weight("cell.r", {1, 4 * kUnits, kUnits}),
                    m.weight("cell.b", {1, 8 * kUnits}), "", "h", "c"});
    m.model().nodes.back().outputs = {"y", "y_h", "y_c"};
    OnnxModel one = m.ending_in("y_h");
    one.outputs.push_back({"y_c", "float", {}});
    return one;
  };
  const OnnxModel one = model(1);
  const Imported imported = translate(one, sample_of(one));
  EXPECT_THAT(types_of(imported), Not(Contains("LSTM")));
  EXPECT_EQ(imported.graph.output_parts.at(1).port.batch_axis, 1);
  constexpr std::int64_t kGates = 4 * kUnits;
  const auto initializer = [&](const char* name, std::int64_t first, const Shape& shape) {
    const auto begin = one.initializers.at(name).reals.begin() + first;
    return Variable(Tensor::from(std::vector<float>(begin, begin + shape_size(shape)), shape));
  };
  const Tensor samples = random_tensor({2, kFeatures + 2 * kUnits}, 7, DType::kF32);
  const Tensor found = output_of(imported, samples);
  for (std::int64_t n = 0; n < 2; ++n) {
    const float* row = samples.data<float>() + n * (kFeatures + 2 * kUnits);
    const auto part = [&](std::int64_t first, const Shape& shape) {
      return Variable(
          Tensor::from(std::vector<float>(row + first, row + first + shape_size(shape)), shape));
    };
    const LstmParameters parameters{
        .weight = initializer("cell.w", 0, {kGates, kFeatures}),
        .recurrent = initializer("cell.r", 0, {kGates, kUnits}),
        .bias = initializer("cell.b", 0, {kGates}) + initializer("cell.b", kGates, {kGates}),
        .output = part(kFeatures, {kUnits}),
        .cell = part(kFeatures + kUnits, {kUnits})};
    const Tensor all = lstm(part(0, {1, 1, kFeatures}), parameters, {.final_cell = true}).value();
    for (std::int64_t i = 0; i < 2 * kUnits; ++i) {  // the output, then the cell
      EXPECT_NEAR(found.data<float>()[n * 2 * kUnits + i], all.data<float>()[i], 1e-6);
    }
  }
  EXPECT_THAT(message_of<InputError>([&] { translate(model(2), sample_of(model(2))); }),
              HasSubstr("its state before the first step is computed, expected a constant"));
}

}  // namespace
}  // namespace steelyard::imports
