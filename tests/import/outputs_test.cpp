// Which value of a file becomes the output of the network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using testing::all_close;
using ::testing::ElementsAre;
using testing::message_of;
using testing::random_tensor;

TEST(Outputs, OneOfSeveralOutputsIsChosen) {
  ModelMaker m({{std::nullopt}, {3}});
  const std::string scores = m.node("Sigmoid", {m.node("Relu", {"x"})});
  m.ending_in(scores);
  m.model().outputs.push_back({"Relu_0:0", "float"});
  OnnxModel model = m.model();
  choose_outputs(model, {"Relu_0:0"});
  EXPECT_THAT(types_of(translate(model, {3})), ElementsAre("ReLU"));
  EXPECT_EQ(message_of<InputError>([&] { choose_outputs(model, {"none"}); }),
            "test.onnx: no output and no value inside is called 'none'; the outputs are Relu_0:0");
}

// What has no form here can stand behind it.
TEST(Outputs, OneOfAValueInsideCutsOffWhatIsBehind) {
  ModelMaker m({{std::nullopt}, {3}});
  const std::string scores = m.node("Sigmoid", {m.node("Relu", {"x"})});
  OnnxModel model = m.ending_in(m.node("ArgMax", {scores}));
  choose_outputs(model, {scores});
  const Imported imported = translate(model, {3});
  EXPECT_THAT(types_of(imported), ElementsAre("ReLU"));
  EXPECT_EQ(imported.graph.head, "Sigmoid");
  EXPECT_EQ(imported.graph.output.name, scores);
}

TEST(Outputs, ThoseOfAnOperationThatAreNotSupportedAreRefused) {
  const auto refusal = [](OnnxNode node) {
    ModelMaker m({{std::nullopt}, {3}});
    m.weight("w", {3});
    m.model().nodes.push_back(std::move(node));
    return message_of<InputError>([&] { translate(m.ending_in("second"), {3}); });
  };
  EXPECT_EQ(refusal({.name = "ln",
                     .op = "LayerNormalization",
                     .inputs = {"x", "w"},
                     .outputs = {"y", "second"}}),
            "test.onnx: the output 'second': ln (LayerNormalization) gives it, and this output of "
            "the operation is not supported");
  EXPECT_EQ(
      refusal({.name = "drop", .op = "Dropout", .inputs = {"x"}, .outputs = {"y", "second"}}),
      "test.onnx: the output 'second': drop (Dropout) gives it, and this output of the operation "
      "is not supported");
}

// An output without a name is none that an absent input could read.
TEST(Outputs, OnesWithoutANameAreNotRead) {
  const auto expect_sums_are_of = [](bool layered) {
    ModelMaker m({{std::nullopt}, {2}});
    m.model().nodes.push_back(
        {.name = "split",
         .op = "Split",
         .inputs = {m.reals("values", {4}, {1, 2, 30, 40}), m.integers({2, 2})},
         .outputs = {"values1", ""}});
    std::string y = "x";
    if (layered) y = m.node("Gemm", {y, m.reals("w", {2, 2}, {1, 0, 0, 1})});
    m.model().nodes.push_back({.name = "none", .op = "Identity", .inputs = {y}, .outputs = {""}});
    const Imported imported = translate(m.ending_in(m.node("Add", {y, "values1"})), {2});
    EXPECT_THAT(testing::values(output_of(imported, Tensor::from<float>({5, 6}, {1, 2}))),
                ElementsAre(6, 8));
  };
  expect_sums_are_of(true);
  expect_sums_are_of(false);
}

// An image and rows, one of which is read inside; the order is the file's, not that of the nodes.
TEST(Outputs, SeveralLieOneAfterAnotherInARow) {
  ModelMaker m({{std::nullopt, "batch"}, {2}, {2}, {3}});
  const std::string kernel = m.reals("kernel", {2, 2, 1, 1}, {1, 0, 0, -1});
  const std::string conv = m.node("Conv", {"x", kernel});
  const std::string image = m.node("Relu", {conv});
  const std::string flat = m.node("Flatten", {image});
  const std::string sum = m.node("ReduceSum", {flat, m.integers({1})});
  OnnxModel model = m.ending_in(sum);
  model.outputs.push_back({image, "float", {{std::nullopt, "n"}, {2}, {2}, {3}}});
  model.outputs.push_back({flat, "float", {}});
  const Imported imported = translate(model, {2, 3, 2});
  EXPECT_THAT(imported.graph.output_parts,
              ElementsAre(PartSpec{{sum}, 0, {1}}, PartSpec{{image, "n"}, 1, {2, 3, 2}},
                          PartSpec{{flat}, 13, {12}}));
  EXPECT_EQ(imported.graph.output, PortSpec{});
  EXPECT_EQ(imported.graph.output_sample, Shape{25});
  EXPECT_EQ(imported.graph.head, "");
  EXPECT_EQ(imported.graph.nodes.back().type, "OutputParts");
  // Of [H, W, C]; rows that the file flattens have its order, channel by channel.
  const Tensor y = output_of(
      imported, Tensor::from<float>({1, -2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {1, 2, 3, 2}));
  EXPECT_THAT(testing::values(y), ElementsAre(38, 1, 2, 3, 0, 5, 0, 7, 0, 9, 0, 11, 0,  //
                                              1, 3, 5, 7, 9, 11, 2, 0, 0, 0, 0, 0));
  choose_outputs(model, {flat});
  const Imported one = translate(model, {2, 3, 2});
  EXPECT_TRUE(one.graph.output_parts.empty());
  EXPECT_EQ(one.graph.output_sample, Shape{12});
}

// What is left out of a graph, or computed with what follows, is an output all the same.
TEST(Outputs, SeveralMayBeOneValueAndMayBeReadInside) {
  ModelMaker m({{std::nullopt}, {2}});
  const std::string linear = m.node("MatMul", {"x", m.reals("w", {2, 2}, {1, 2, 3, 4})});
  const std::string biased = m.node("Add", {linear, m.reals("b", {2}, {10, 20})});
  const std::string same = m.node("Identity", {biased});
  const std::string gate = m.node("Sigmoid", {biased});
  OnnxModel model = m.ending_in(m.node("Mul", {biased, gate}));  // a SiLU
  for (const std::string& name : {linear, gate, same, biased}) {
    model.outputs.push_back({name, "float"});
  }
  const Imported imported = translate(model, {2});
  ASSERT_EQ(imported.graph.output_parts.size(), 5);
  EXPECT_EQ(imported.graph.output_parts[3].port.name, same);
  const std::vector<double> y =
      testing::values(output_of(imported, Tensor::from<float>({1, 1}, {1, 2})));
  EXPECT_THAT(y, ElementsAre(::testing::DoubleNear(14, 1e-4), ::testing::DoubleNear(26, 1e-4), 4, 6,
                             ::testing::DoubleNear(1, 1e-5), ::testing::DoubleNear(1, 1e-5), 14, 26,
                             14, 26));
}

TEST(Outputs, NamesTheOneOfSeveralThatIsNone) {
  const auto refusal = [](const std::function<std::string(ModelMaker&)>& second) {
    ModelMaker m({{std::nullopt}, {2}, {3}});
    const std::string first = m.node("Relu", {"x"}), other = second(m);
    OnnxModel model = m.ending_in(first);
    model.outputs.push_back({other, "float"});
    return message_of<InputError>([&] { translate(model, {2, 3}); });
  };
  const std::string hint = " (model.output names another one)";
  EXPECT_EQ(refusal([](ModelMaker&) { return "x"; }),
            "test.onnx: the output 'x' is the input" + hint);
  EXPECT_EQ(refusal([](ModelMaker& m) {
              return m.reals("table", {2}, {1, 2});
            }),
            "test.onnx: the output 'table' is a constant" + hint);
  EXPECT_EQ(refusal([](ModelMaker& m) {
              return m.node("Greater", {"x", m.number(0)});
            }),
            "test.onnx: the output 'Greater_1:0' holds whole numbers" + hint);
  EXPECT_EQ(refusal([](ModelMaker& m) {
              return m.node("Reshape", {"x", m.integers({-1, 3})});
            }),
            "test.onnx: the output 'Reshape_1:0': expected a dimension of the batch alone, got "
            "[2*N, 3]" +
                hint);
}

// Losses take what is before it, and each form computes the same.
TEST(Outputs, AnActivationIsTheHeadAlsoBehindMoves) {
  const std::map<std::string, OnnxAttributeValue> channels{{"axis", std::int64_t{1}}};
  const auto network = [&](const std::vector<std::string>& operations) {
    ModelMaker m(images(3));
    std::string y = m.node("GlobalAveragePool", {"x"});
    for (const std::string& op : operations) {
      if (op == "Squeeze") {
        y = m.node(op, {y, m.integers({2, 3})});
      } else {
        y = m.node(op, {y},
                   op == "Sigmoid" ? std::map<std::string, OnnxAttributeValue>() : channels);
      }
    }
    return translate(m.ending_in(y), {6, 5, 3});
  };
  const Tensor x = random_tensor({2, 6, 5, 3}, 7, DType::kF32);
  for (const std::string type : {"Softmax", "LogSoftmax", "Sigmoid"}) {
    const Imported plain = network({"Flatten", type});
    EXPECT_EQ(plain.graph.head, type);
    const Tensor expected = output_of(plain, x);
    for (const auto& operations :
         {std::vector<std::string>{type}, {type, "Flatten"}, {type, "Squeeze"}}) {
      SCOPED_TRACE(type + " first of " + std::to_string(operations.size()));
      const Imported imported = network(operations);
      EXPECT_EQ(imported.graph.head, type);
      EXPECT_TRUE(all_close(output_of(imported, x).reshape({2, 3}), expected, 0, 0));
    }
  }
}

// Rows of a Softmax that are no rows of the output, and what other nodes read too.
TEST(Outputs, AnActivationThatOutputsDoNotEndInStays) {
  const auto network = [](const std::string& op,
                          const std::map<std::string, OnnxAttributeValue>& attributes) {
    ModelMaker m({{std::nullopt}, {2}, {3}});
    return translate(m.ending_in(m.node(op, {m.node("Softmax", {"x"})}, attributes)), {2, 3});
  };
  for (const Imported& imported :
       {network("Flatten", {}),
        network("Transpose", {{"perm", std::vector<std::int64_t>{0, 2, 1}}})}) {
    EXPECT_EQ(imported.graph.head, "");
    EXPECT_EQ(output_activation(imported.graph), "Softmax");
  }
  ModelMaker m({{std::nullopt}, {2}, {3}});
  const std::string y = m.node("Sigmoid", {"x"});
  const std::string flat = m.node("Flatten", {y});
  const Imported imported =
      translate(m.ending_in(m.node("Add", {flat, m.node("Flatten", {y})})), {2, 3});
  EXPECT_EQ(imported.graph.head, "");
}

}  // namespace
}  // namespace steelyard::imports
