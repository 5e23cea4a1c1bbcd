// What validate() lets through and what it names.
#include "steelyard/runtime/graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "tests/export/export_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::deploy {
namespace {

using testing::images;
using testing::message_of;
using testing::quantized_model;
using testing::w8a8;

Graph a_graph() {
  Rng rng(2);
  const auto model = quantized_model(testing::residual_net(rng), w8a8(4));
  Graph graph = trace(*model, images(1, 1), "net").graph;
  for (Node& node : graph.nodes) {
    if (node.weights) node.weights->weight = node.weights->weight.clone();
  }
  return graph;
}

struct GraphDamage {
  const char* name;
  std::function<void(Graph&)> change;
  const char* message;
};

void PrintTo(const GraphDamage& damage, std::ostream* out) { *out << damage.name; }

Node& conv1(Graph& graph) { return graph.nodes[1]; }
Quantization& conv1_codes(Graph& graph) { return *graph.values[conv1(graph).output].quantization; }

std::vector<GraphDamage> graph_damages() {
  return {{"scale_zero", [](Graph& g) { conv1_codes(g).scale = 0; }, "a finite scale above 0"},
          {"scale_nan", [](Graph& g) { conv1_codes(g).scale = NAN; }, "a finite scale above 0"},
          {"zero_point", [](Graph& g) { conv1_codes(g).zero_point = 256; }, "do not fit u8"},
          {"weight_scale",
           [](Graph& g) { conv1(g).weights->scales[2] = std::numeric_limits<float>::infinity(); },
           "finite weight scales"},
          {"scales", [](Graph& g) { conv1(g).weights->scales.pop_back(); },
           "5 weight scales do not divide its weight"},
          {"code", [](Graph& g) { conv1(g).weights->weight.data<std::int8_t>()[3] = 9; },
           "weight code 9 does not fit 4 bits"},
          {"bias", [](Graph& g) { conv1(g).weights->bias = Tensor::zeros({5}, DType::kI32); },
           "its bias does not fit"},
          {"bias_overflow",
           [](Graph& g) {
             conv1(g).weights->bias = Tensor::zeros({6}, DType::kI32);
             conv1(g).weights->bias.data<std::int32_t>()[4] = INT32_MIN;
           },
           "the sums of channel 4 can overflow int32"},
          {"no_elements",
           [](Graph& g) {
             conv1(g).weights->weight = Tensor::zeros({6, 0, 3, 3}, DType::kI8);
           },
           "its weight [6, 0, 3, 3] has no elements"},
          {"normalization",
           [](Graph& g) {
             g.preprocessing.normalization = {{0.5F}, {1.0F}};
           },
           "1 means and 1 standard deviations do not fit the input [9, 8, 3]"},
          {"window",
           [](Graph& g) {
             conv1(g).as<Conv2dGeometry>().padding = {1 << 21, 1};
           },
           "expected windows of at most 1048576 pixels, got 2097152"},
          {"no_weights", [](Graph& g) { conv1(g).weights.reset(); }, "weights belong to"},
          {"shape",
           [](Graph& g) {
             g.values[conv1(g).output].shape = {9, 8, 5};
           },
           "expected the output [9, 8, 6], got [9, 8, 5]"},
          {"order", [](Graph& g) { std::swap(g.nodes[1], g.nodes[2]); }, "no node made before"},
          {"index", [](Graph& g) { conv1(g).inputs = {99}; }, "no node made before"},
          {"twice", [](Graph& g) { g.nodes[2].output = conv1(g).output; }, "made by another node"},
          {"arity", [](Graph& g) { conv1(g).inputs.push_back(0); }, "wrong number of inputs"},
          {"float_input", [](Graph& g) { conv1(g).inputs = {0}; }, "need a quantized input"},
          {"sum", [](Graph& g) { g.nodes[4].inputs[1] = 0; }, "needs quantized operands"},
          {"float_activation", [](Graph& g) { g.values[conv1(g).output].quantization.reset(); },
           "its output is float"},
          {"stride",
           [](Graph& g) {
             conv1(g).as<Conv2dGeometry>().stride = {0, 1};
           },
           "stride"},
          {"output", [](Graph& g) { g.output = 1000; }, "not one of its values"}};
}

class Validate : public ::testing::TestWithParam<GraphDamage> {};

TEST_P(Validate, NamesWhatDoesNotFit) {
  Graph graph = a_graph();
  EXPECT_NO_THROW(validate(graph));
  GetParam().change(graph);
  const std::string message = message_of<std::invalid_argument>([&] { validate(graph); });
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(Damages, Validate, ::testing::ValuesIn(graph_damages()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Validate, NamesJoinsThatDoNotFit) {
  Rng rng(2);
  const auto model = quantized_model(testing::concat_net(rng), w8a8());
  const Graph graph = trace(*model, images(1, 1), "net").graph;
  const auto join = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                 [](const Node& node) { return node.name == "join1"; });
  ASSERT_NE(join, graph.nodes.end());
  const auto message = [&](const std::function<void(Graph&, Node&)>& damage) {
    Graph damaged = graph;
    damage(damaged, damaged.nodes[static_cast<std::size_t>(join - graph.nodes.begin())]);
    return message_of<std::invalid_argument>([&] { validate(damaged); });
  };
  EXPECT_EQ(message([](Graph&, Node& node) { node.inputs.pop_back(); }),
            "[graph] join1 (concat): expected the output [9, 8, 10], got [9, 8, 12]");
  EXPECT_EQ(message([](Graph&, Node& node) { node.inputs.clear(); }),
            "[graph] join1 (concat): wrong number of inputs");
  EXPECT_EQ(message([](Graph& g, Node& node) { node.inputs[0] = g.input; }),
            "[graph] join1 (concat): a quantized join needs quantized operands");
}

TEST(Graph, CountsPackedParameters) {
  Graph graph = a_graph();
  for (const int bits : {2, 4, 5}) {
    std::int64_t bytes = 0;
    for (Node& node : graph.nodes) {
      if (!node.weights) continue;
      node.weights->bits = bits;
      const std::int64_t codes_a_byte = bits == 2 ? 4 : bits == 4 ? 2 : 1;
      bytes += (node.weights->weight.size() + codes_a_byte - 1) / codes_a_byte +
               4 * 2 * node.weights->weight.dim(0);
    }
    EXPECT_EQ(parameter_bytes(graph), bytes) << bits << " bits";
  }
}

TEST(Validate, FlattensImagesAndFeaturesOnly) {
  Graph graph;
  graph.values = {{"input", {5, 8}, {}}, {"flat", {40}, {}}};
  Node flatten;
  flatten.name = "flat";
  flatten.inputs = {0};
  flatten.output = 1;
  graph.nodes = {flatten};
  graph.output = 1;
  EXPECT_EQ(message_of<std::invalid_argument>([&] { validate(graph); }),
            "[graph] flat (flatten): expected an image or features, got [5, 8]");
}

}  // namespace
}  // namespace steelyard::deploy
