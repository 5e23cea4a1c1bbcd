// Modules that come from one initializer are one, at several places.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using ::testing::ElementsAre;
using testing::message_of;
using testing::random_tensor;

std::vector<std::string> owners_of(const Imported& imported) {
  std::vector<std::string> owners;
  for (const NodeSpec& node : imported.graph.nodes) {
    if (node.type != "ReLU") owners.push_back(node.weights_of);
  }
  return owners;
}

// x [N, 5, 4], multiplied by one matrix four times.
Imported four_products() {
  ModelMaker m({{std::nullopt}, {5}, {4}});
  const std::string weight = m.weight("layer.weight", {4, 4});
  std::string y = "x";
  for (int i = 0; i < 4; ++i) {
    y = m.node("MatMul", {y, weight});
    if (i < 3) y = m.node("Relu", {y});
  }
  return translate(m.ending_in(y), {5, 4});
}

// The same network with a copy of the weights at each place.
Imported with_copies(Imported shared) {
  for (NodeSpec& node : shared.graph.nodes) {
    if (node.weights_of.empty()) continue;
    for (const NamedTensor& tensor : std::vector<NamedTensor>(shared.weights)) {
      const std::string of = node.weights_of + ".";
      if (!tensor.name.starts_with(of)) continue;
      shared.weights.push_back(
          {node.name + "." + tensor.name.substr(of.size()), tensor.tensor.clone()});
    }
    node.weights_of.clear();
  }
  return shared;
}

TEST(SharedWeights, OneMatrixAtFourPlacesIsOneModule) {
  const Imported imported = four_products();
  EXPECT_THAT(names_of(imported),
              ElementsAre("layer", "Relu_1", "layer_2", "Relu_3", "layer_3", "Relu_5", "layer_4"));
  EXPECT_THAT(owners_of(imported), ElementsAre("", "layer", "layer", "layer"));
  ASSERT_EQ(imported.weights.size(), 1u);
  EXPECT_EQ(imported.weights[0].name, "layer.weight");
  EXPECT_THAT(imported.notes,
              ElementsAre("1 module is used at 4 places, each with one set of weights"));
  const auto module = module_of(imported);
  EXPECT_EQ(distinct(module->named_parameters()).size(), 1u);
  EXPECT_EQ(module_state(*module).size(), 1u);
  const Tensor x = random_tensor({3, 5, 4}, 7, DType::kF32);
  const Tensor y = output_of(imported, x), expected = output_of(with_copies(imported), x);
  EXPECT_TRUE(testing::all_close(y, expected, 0, 0));
  EXPECT_NE(to_string(imported.graph).find("Linear(4, 4, no bias) with the weights of layer <-"),
            std::string::npos);
}

TEST(SharedWeights, TheGradientIsTheSumOfThoseOfCopies) {
  const Imported imported = four_products();
  const auto shared = module_of(imported), copies = module_of(with_copies(imported));
  const Tensor x = random_tensor({3, 5, 4}, 7, DType::kF32);
  for (Module* module : {shared.get(), copies.get()}) {
    ForwardContext context;
    const Variable y = module->forward(Variable(x), context);
    mean(y * y).backward();
  }
  const auto one = distinct(shared->named_parameters());
  ASSERT_EQ(one.size(), 1u);
  const Tensor gradient = one[0].variable.grad();
  for (std::int64_t i = 0; i < gradient.size(); ++i) {
    double sum = 0;
    for (const NamedParameter& p : copies->named_parameters()) {
      sum += double{p.variable.grad().data<float>()[i]};
    }
    EXPECT_NEAR(gradient.data<float>()[i], sum, 1e-5 * (1 + std::abs(sum)));
  }
}

TEST(SharedWeights, ReachThroughTransposeReshapeAndIdentity) {
  ModelMaker m({{std::nullopt}, {4}});
  const std::string weight = m.weight("w", {4, 4});
  const std::string turned =
      m.node("Transpose", {weight}, {{"perm", std::vector<std::int64_t>{1, 0}}});
  const std::string same = m.node("Identity", {weight});
  const std::string flat = m.node("Reshape", {weight, m.integers({16})});
  const std::string again = m.node("Reshape", {flat, m.integers({4, 4})});
  std::string y = m.node("MatMul", {"x", weight});
  y = m.node("Gemm", {m.node("Relu", {y}), turned}, {{"transB", std::int64_t{1}}});
  y = m.node("MatMul", {m.node("Relu", {y}), same});
  y = m.node("MatMul", {m.node("Relu", {y}), again});
  const Imported imported = translate(m.ending_in(y), {4});
  const auto owners = owners_of(imported);
  ASSERT_EQ(owners.size(), 4u);
  EXPECT_THAT(owners, ElementsAre("", imported.graph.nodes[0].name, imported.graph.nodes[0].name,
                                  imported.graph.nodes[0].name));
}

TEST(SharedWeights, AConvolutionOfTwoHeadsHasOneWeightAndBias) {
  ModelMaker m(images(2));
  const std::string weight = m.weight("head.weight", {2, 2, 3, 3}), bias = m.weight("b", {2});
  const auto conv = [&](const std::string& x) {
    return m.node("Conv", {x, weight, bias}, {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}});
  };
  const std::string sum = m.node("Add", {conv("x"), conv(m.node("Sigmoid", {"x"}))});
  const Imported imported = translate(m.ending_in(sum), {6, 5, 2});
  EXPECT_THAT(shared_text(imported.graph), "1 module is used at 2 places");
  EXPECT_EQ(imported.weights.size(), 2u);
}

TEST(SharedWeights, OthersAreNot) {
  const auto owners = [](const std::vector<std::string>& weights,
                         const std::vector<std::string>& biases) {
    ModelMaker m({{std::nullopt}, {2}});
    for (const char* name : {"w", "equal"}) m.reals(name, {2, 2}, {1, 2, 3, 4});
    for (const char* name : {"b", "c"}) m.reals(name, {2}, {0, 0});
    std::string y = "x";
    for (std::size_t i = 0; i < weights.size(); ++i) {
      y = m.node("Relu", {m.node("Gemm", {y, weights[i], biases[i]})});
    }
    return owners_of(translate(m.ending_in(y), {2}));
  };
  EXPECT_THAT(owners({"w", "w"}, {"b", "b"}), ElementsAre("", "Gemm_0"));
  EXPECT_THAT(owners({"w", "equal"}, {"b", "b"}), ElementsAre("", "")) << "two initializers";
  EXPECT_THAT(owners({"w", "w"}, {"b", "c"}), ElementsAre("", "")) << "biases of their own";
}

TEST(SharedWeights, AreInTheTextOfTheGraph) {
  const Imported imported = four_products();
  const std::string text = text_of(imported.graph);
  EXPECT_EQ(text_of(graph_from(text, "t")), text);
  EXPECT_NE(text.find("\"format\":2"), std::string::npos);
  EXPECT_NE(text_of(with_copies(imported).graph).find("\"format\":1"), std::string::npos);
  for (const char* other : {"nothing", "Relu_1", "layer_4", "layer_2"}) {
    GraphSpec graph = imported.graph;
    graph.nodes[4].weights_of = other;
    EXPECT_EQ(message_of<InputError>([&] { build(graph, false, "t"); }),
              "t: graph: node 'layer_3' has the weights of '" + std::string(other) +
                  "', which is no such module before it with weights of its own");
  }
}

TEST(SharedWeights, AreLoadedUnderAnyOfTheirNames) {
  const Imported imported = four_products();
  const auto module = module_of(imported);
  const Tensor weight = random_tensor({4, 4}, 9, DType::kF32);
  load_into(*module, {{"layer_3.weight", weight}}, "test");
  EXPECT_TRUE(testing::all_close(module_state(*module)[0].tensor, weight, 0, 0));
  EXPECT_EQ(module_state(*module)[0].name, "layer.weight");
  EXPECT_NE(message_of<InputError>([&] { load_into(*module, {}, "test"); }).find("layer.weight"),
            std::string::npos);
}

}  // namespace
}  // namespace steelyard::imports
