// Sequential, Residual, Concat, Graph; Embedding: order, names and replaced children.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

#include "steelyard/layers/activations.h"
#include "steelyard/layers/concat.h"
#include "steelyard/layers/containers/graph.h"
#include "steelyard/layers/containers/residual.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/identity.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/embedding.h"
#include "steelyard/layers/weighted/linear.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using testing::message_of;
using testing::names_of;
using testing::values;

// y = x W^T with W = factor * identity, no bias.
std::shared_ptr<Linear> times(float factor) {
  Rng rng(1);
  auto layer = std::make_shared<Linear>(
      LinearOptions{.in_features = 2, .out_features = 2, .bias = false}, rng);
  layer->weight().value().copy_from(Tensor::from<float>({factor, 0, 0, factor}, {2, 2}));
  return layer;
}

Variable input() { return Variable(Tensor::from<float>({1, -2}, {1, 2})); }

std::vector<double> run(Module& module) {
  ForwardContext context;
  return values(module.forward(input(), context).value());
}

TEST(Sequential, AppliesChildrenInOrderAndNumbersThem) {
  Sequential model(Sequential::Children{times(3), std::make_shared<ReLU>(), times(-2)});
  EXPECT_THAT(run(model), ElementsAre(-6, 0));
  EXPECT_THAT(names_of(model.named_parameters()), ElementsAre("0.weight", "2.weight"));
}

TEST(Sequential, TakesNames) {
  Sequential model(Sequential::NamedChildren{{"fc1", times(2)}, {"fc2", times(5)}});
  EXPECT_THAT(run(model), ElementsAre(10, -20));
  EXPECT_THAT(names_of(model.named_parameters()), ElementsAre("fc1.weight", "fc2.weight"));
}

TEST(Sequential, WithoutChildrenIsTheIdentity) {
  Sequential model(Sequential::Children{});
  EXPECT_THAT(run(model), ElementsAre(1, -2));
}

TEST(Sequential, AReplacedChildIsUsed) {
  Sequential model(Sequential::NamedChildren{{"fc", times(2)}});
  model.slot("fc").replace(times(-1));
  EXPECT_THAT(run(model), ElementsAre(-1, 2));
}

TEST(Residual, AddsTheShortcutThenActivates) {
  Residual plain(times(2));
  EXPECT_THAT(run(plain), ElementsAre(3, -6));
  Residual activated(times(2), nullptr, std::make_shared<ReLU>());
  EXPECT_THAT(run(activated), ElementsAre(3, 0));
  Residual projected(times(2), times(10), std::make_shared<ReLU6>());
  EXPECT_THAT(run(projected), ElementsAre(6, 0));
}

TEST(Concat, JoinsItsNamedBranches) {
  const auto model = std::make_shared<Concat>(
      std::vector<std::shared_ptr<Module>>{times(2), std::make_shared<Identity>()});
  EXPECT_THAT(run(*model), ElementsAre(2, -4, 1, -2));
  EXPECT_THAT(names_of(model->named_parameters()), ElementsAre("branch1.weight"));
  model->slot("branch2").replace(times(3));
  EXPECT_THAT(run(*model), ElementsAre(2, -4, 3, -6));
  Concat named({{"a", times(1)}, {"b", times(5)}});
  EXPECT_THAT(names_of(named.named_parameters()), ElementsAre("a.weight", "b.weight"));
  EXPECT_EQ(message_of<std::invalid_argument>([] { Concat none(Concat::NamedBranches{}); }),
            "[Concat] expected branches, got none");
}

TEST(Graph, ComputesNodesAfterThoseTheyRead) {
  Graph model({{"sum", std::make_shared<Add>(), {"double", "triple"}},
               {"triple", times(3), {"double"}},
               {"double", times(2), {"input"}}});
  EXPECT_THAT(run(model), ElementsAre(8, -16));
  EXPECT_THAT(names_of(model.named_parameters()), ElementsAre("triple.weight", "double.weight"));
  Graph joined({{"a", times(2)}, {"b", times(5)}, {"both", std::make_shared<Cat>(), {"a", "b"}}});
  EXPECT_THAT(run(joined), ElementsAre(2, -4, 10, -20)) << "inputs by default: the node before";
}

TEST(Graph, RefusesWhatIsNoGraph) {
  const auto message = [](const std::vector<Graph::NamedNode>& nodes) {
    return message_of<std::invalid_argument>([&] { Graph graph(nodes); });
  };
  EXPECT_EQ(message({{"a", times(1)}, {"a", times(1)}}), "[Graph] the name 'a' is taken");
  EXPECT_EQ(message({{"a", times(1), {"b"}}}), "[Graph] a reads 'b', which is no node");
  EXPECT_EQ(message({{"a", times(1), {"b"}}, {"b", times(1), {"a"}}}),
            "[Graph] a waits for its own output: the graph has a cycle");
  EXPECT_EQ(message({{"a", times(1)}, {"b", times(1), {"input"}}}),
            "[Graph] expected one node that nobody reads, the output, got a, b");
  EXPECT_EQ(message_of<std::invalid_argument>([] {
              Graph graph({{"a", times(1)}, {"b", times(1), {"a", "input"}}});
              run(graph);
            }),
            "[Graph] b (Linear): expected 1 input, got 2");
}

TEST(Embedding, LooksUpItsWeight) {
  Rng rng(1);
  Embedding layer({.count = 5, .width = 3}, rng);
  ForwardContext context;
  const Variable y = layer.forward(Variable(Tensor::from<std::int64_t>({4, 1}, {2})), context);
  EXPECT_EQ(y.shape(), (Shape{2, 3}));
  EXPECT_EQ(layer.named_parameters()[0].name, "weight");
  EXPECT_EQ(values(y.value())[0], values(layer.named_parameters()[0].variable.value())[12]);
  EXPECT_EQ(
      message_of<std::invalid_argument>([&] { Embedding none({.count = 0, .width = 3}, rng); }),
      "[Embedding] expected count and width of at least 1, got 0 and 3");
}

TEST(Residual, EverySlotCanBeReplaced) {
  Residual block(times(2));
  block.main().replace(times(1));
  EXPECT_THAT(run(block), ElementsAre(2, -4));
  block.slot("downsample").replace(times(-3));
  EXPECT_THAT(run(block), ElementsAre(-2, 4));
  block.slot("relu").replace(std::make_shared<ReLU>());
  EXPECT_THAT(run(block), ElementsAre(0, 4));
  EXPECT_EQ(block.shortcut()->type_name(), "Linear");
  EXPECT_EQ(block.activation()->type_name(), "ReLU");
}

// The names of torchvision's resnet: layer1.0.conv1, layer1.0.downsample.0.
TEST(Residual, NamesItsPartsAsTorchvisionDoes) {
  Rng rng(1);
  const auto conv = [&] {
    return std::make_shared<Conv2d>(
        Conv2dOptions{.in_channels = 2, .out_channels = 2, .bias = false}, rng);
  };
  const auto norm = [] { return std::make_shared<BatchNorm2d>(BatchNorm2dOptions{.channels = 2}); };
  const auto main =
      std::make_shared<Sequential>(Sequential::NamedChildren{{"conv1", conv()}, {"bn1", norm()}});
  const auto shortcut = std::make_shared<Sequential>(Sequential::Children{conv(), norm()});
  const auto block = std::make_shared<Residual>(main, shortcut, std::make_shared<ReLU>());
  const auto layer1 = std::make_shared<Sequential>(Sequential::Children{block});
  Sequential model(Sequential::NamedChildren{{"layer1", layer1}});
  EXPECT_THAT(names_of(model.named_parameters()),
              ElementsAre("layer1.0.conv1.weight", "layer1.0.bn1.weight", "layer1.0.bn1.bias",
                          "layer1.0.downsample.0.weight", "layer1.0.downsample.1.weight",
                          "layer1.0.downsample.1.bias"));
  EXPECT_EQ(model.slot("layer1.0.conv1")->type_name(), "Conv2d");
  EXPECT_EQ(model.slot("layer1.0.downsample.1")->type_name(), "BatchNorm2d");
  model.slot("layer1.0.conv1").replace(std::make_shared<Identity>());
  EXPECT_EQ(model.slot("layer1.0.conv1")->type_name(), "Identity");
}

TEST(Residual, Errors) {
  EXPECT_THROW(Residual(nullptr), std::invalid_argument);
  const auto clash =
      std::make_shared<Sequential>(Sequential::NamedChildren{{"relu", std::make_shared<ReLU>()}});
  EXPECT_EQ(message_of<std::invalid_argument>([&] { Residual block(clash); }),
            "[Residual] expected main without a child 'relu': its children share their names with "
            "the other slots");
  Residual narrowing(std::make_shared<Flatten>());
  ForwardContext context;
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              narrowing.forward(Variable(Tensor::zeros({1, 2, 2, 3})), context);
            }),
            "[add] expected equal shapes, got [1, 12] and [1, 2, 2, 3]");
}

}  // namespace
}  // namespace steelyard
