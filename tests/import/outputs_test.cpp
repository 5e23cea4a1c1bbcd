// Which value of a file becomes the output of the network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  choose_output(model, "Relu_0:0");
  EXPECT_THAT(types_of(translate(model, {3})), ElementsAre("ReLU"));
  EXPECT_EQ(message_of<InputError>([&] { choose_output(model, "none"); }),
            "test.onnx: no output and no value inside is called 'none'; the outputs are Relu_0:0");
}

// What has no form here can stand behind it.
TEST(Outputs, OneOfAValueInsideCutsOffWhatIsBehind) {
  ModelMaker m({{std::nullopt}, {3}});
  const std::string scores = m.node("Sigmoid", {m.node("Relu", {"x"})});
  OnnxModel model = m.ending_in(m.node("ArgMax", {scores}));
  choose_output(model, scores);
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
