// Networks as text: what checkpoints hold.
#include "steelyard/import/graph/graph_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/catalogue.h"
#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

GraphSpec network() {
  GraphSpec graph;
  graph.input = {"images", "N", true};
  graph.output = {"scores", "batch", false};
  graph.sample = {4, 4, 2};
  graph.output_sample = {3};
  const std::vector<std::int64_t> one{1, 1}, none{0, 0};
  graph.nodes = {{"conv",
                  "Conv2d",
                  {"input"},
                  {{"in_channels", std::int64_t{2}},
                   {"out_channels", std::int64_t{3}},
                   {"kernel", one},
                   {"stride", one},
                   {"padding", none},
                   {"dilation", one},
                   {"groups", std::int64_t{1}},
                   {"bias", true}}},
                 {"gate", "HardSigmoid", {"conv"}, {{"slope", 0.2}, {"offset", 1.0}}},
                 {"mul", "Mul", {"conv", "gate"}},
                 {"pool", "GlobalAvgPool", {"mul"}}};
  graph.head = "Softmax";
  return graph;
}

TEST(GraphSpec, TextGivesTheSameGraph) {
  const GraphSpec graph = network();
  const std::string text = text_of(graph);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const GraphSpec again = graph_from(text, "file");
  EXPECT_EQ(text_of(again), text);
  EXPECT_EQ(again.digest(), graph.digest());
  EXPECT_EQ(again.input, graph.input);
  // A whole number of a real option stays real.
  EXPECT_EQ(again.nodes[1].options.at("offset"), OptionValue(1.0));
}

// What exporters pad with in front of MaxPool.
TEST(GraphSpec, TextHoldsInfiniteNumbers) {
  GraphSpec graph = network();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  graph.nodes[1].options = {{"slope", kInfinity}, {"offset", -kInfinity}};
  const GraphSpec again = graph_from(text_of(graph), "file");
  EXPECT_EQ(again.nodes[1].options, graph.nodes[1].options);
}

TEST(GraphSpec, BuildsWithAndWithoutTheLastActivation) {
  const Variable x(Tensor::zeros({2, 4, 4, 2}));
  ForwardContext context;
  const auto sum = [&](bool with_head) {
    const auto module = build(network(), with_head, "file");
    const Tensor y = module->forward(x, context).value();
    EXPECT_EQ(y.shape(), (Shape{2, 3}));
    return y.data<float>()[0] + y.data<float>()[1] + y.data<float>()[2];
  };
  EXPECT_NEAR(sum(true), 1, 1e-6);
  EXPECT_GT(std::abs(sum(false) - 1), 1e-3);
}

TEST(GraphSpec, RefusesWhatDoesNotFitTogether) {
  const auto refusal = [](const std::function<void(GraphSpec&)>& change) {
    GraphSpec graph = network();
    change(graph);
    return message_of<InputError>([&] { build(graph, true, "run"); });
  };
  EXPECT_EQ(refusal([](GraphSpec& g) { g.nodes[2].type = "Mull"; }),
            "run: graph: node 'mul': unknown module 'Mull'");
  EXPECT_EQ(refusal([](GraphSpec& g) { g.nodes[0].options.erase("bias"); }),
            "run: graph: node 'conv': the option 'bias' is missing");
  EXPECT_EQ(refusal([](GraphSpec& g) { g.nodes[0].options["bias"] = 1.0; }),
            "run: graph: node 'conv': the option 'bias' is of another kind");
  EXPECT_THAT(refusal([](GraphSpec& g) { g.nodes[2].inputs[1] = "gates"; }),
              HasSubstr("reads 'gates', which is no node"));
  EXPECT_THAT(refusal([](GraphSpec& g) { g.nodes[1].inputs[0] = "mul"; }), HasSubstr("a cycle"));
  EXPECT_THAT(refusal([](GraphSpec& g) { g.output_sample = {4}; }),
              HasSubstr("expected an output of [2, 4], got [2, 3]"));
  EXPECT_THAT(
      refusal([](GraphSpec& g) { g.nodes[0].options["out_channels"] = std::int64_t{1} << 40; }),
      HasSubstr("at most 268435456 weights"));
}

// What gives the network's values and the mean of them, as [H, W, C] and [C].
GraphSpec of_two_outputs() {
  GraphSpec graph = network();
  graph.head.clear();
  graph.output = {};
  graph.output_sample = {4 * 4 * 3 + 3};
  graph.output_parts = {{{"map", "batch", true}, 0, {4, 4, 3}}, {{"mean"}, 48, {3}}};
  graph.output_parts[0].port.free = {{0, "h"}, {1, ""}};
  graph.nodes.push_back({"outputs", "OutputParts", {"mul", "pool"}});
  return graph;
}

TEST(GraphSpec, TextHasOutputPartsOnlyWhereThereAreSome) {
  const GraphSpec graph = of_two_outputs();
  const GraphSpec again = graph_from(text_of(graph), "file");
  EXPECT_EQ(again.output_parts, graph.output_parts);
  EXPECT_EQ(again.output_ports()[1].name, "mean");
  EXPECT_EQ(text_of(again), text_of(graph));
  EXPECT_EQ(network().output_ports()[0].name, "scores");
  EXPECT_EQ(text_of(network()).find("output_parts"), std::string::npos);
  // As checkpoints of earlier versions have it.
  EXPECT_EQ(network().digest(), "ff2b5a3471a77b14f9777a08554c21349728225bca87655747eb70d9ca15252a");
}

TEST(GraphSpec, RefusesOutputsThatItsLastModuleDoesNotGive) {
  const auto refusal = [](const std::function<void(GraphSpec&)>& change) {
    GraphSpec graph = of_two_outputs();
    change(graph);
    return message_of<InputError>([&] { build(graph_from(text_of(graph), "run"), true, "run"); });
  };
  const std::string other = "run: graph: expected as many outputs as its last module reads, got ";
  EXPECT_EQ(refusal([](GraphSpec& g) { g.output_parts.pop_back(); }), other + "1");
  EXPECT_EQ(refusal([](GraphSpec& g) { g.output_parts.clear(); }), other + "0");
  EXPECT_EQ(refusal([](GraphSpec& g) { g.output_parts[1].first = 49; }),
            "run: graph: an output outside of the sample");
  EXPECT_EQ(refusal([](GraphSpec& g) { g.output_parts[1].port.free[1] = ""; }),
            "run: graph: a free dimension 1 of [3]");
  EXPECT_THAT(refusal([](GraphSpec& g) { g.output_sample = {60}; }),
              HasSubstr("expected an output of [2, 60], got [2, 51]"));
  EXPECT_NO_THROW(build(of_two_outputs(), true, "run"));
}

TEST(GraphSpec, RefusesDamagedText) {
  const std::string text = text_of(network());
  for (const std::string& damaged :
       {std::string("{"), std::string("[]"), text.substr(0, text.size() - 3),
        std::string(R"({"format":3})"), std::string(R"({"format":1})")}) {
    EXPECT_THAT(message_of<InputError>([&] { graph_from(damaged, "last.safetensors"); }),
                ::testing::StartsWith("last.safetensors: graph: "));
  }
}

}  // namespace
}  // namespace steelyard::imports
