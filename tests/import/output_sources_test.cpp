// Which modules give the values that outputs are joined of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/import/output_sources.h"
#include "tests/import/onnx_support.h"

namespace steelyard::imports {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Boxes of two scales joined along the anchors, with scores of a Sigmoid behind the boxes.
TEST(OutputSources, TellsBoxesFromScores) {
  ModelMaker m({{std::nullopt}, {1}, {2}, {2}});
  const auto scale = [&](const std::string& weights) {
    return m.node("Reshape",
                  {m.node("Conv", {"x", m.weight(weights, {7, 1, 1, 1})}), m.integers({0, 7, -1})});
  };
  const std::string all = m.node("Concat", {scale("near"), scale("far")}, {{"axis", 2L}});
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    return m.node("Slice", {all, m.integers({begin}), m.integers({end}), m.integers({1})});
  };
  const std::string boxes = m.node("Mul", {part(0, 4), m.number(8)});
  const std::string scores = m.node("Sigmoid", {part(4, 7)});
  const Imported imported =
      translate(m.ending_in(m.node("Concat", {boxes, scores}, {{"axis", 1L}})), {2, 2, 1});
  const OutputSources sources = output_sources(imported.graph);
  ASSERT_EQ(imported.graph.output_sample, Shape({7, 8}));
  ASSERT_EQ(sources.of_values.size(), 56U);
  ASSERT_EQ(sources.types.size(), 2U);
  for (std::size_t i = 0; i < 56; ++i) {
    EXPECT_EQ(sources.types[static_cast<std::size_t>(sources.of_values[i])] == "Sigmoid", i >= 32)
        << i;
  }
}

TEST(OutputSources, AreOfEachOfSeveralOutputs) {
  ModelMaker m({{std::nullopt}, {3}});
  const std::string one = m.node("Relu", {"x"}), two = m.node("Tanh", {"x"});
  OnnxModel model = m.ending_in(one);
  model.outputs.push_back({two, "float", {}});
  const OutputSources sources = output_sources(translate(model, {3}).graph);
  EXPECT_THAT(sources.types, ElementsAre("ReLU", "Tanh"));
  EXPECT_THAT(sources.of_values, ElementsAre(0, 0, 0, 1, 1, 1));
}

TEST(OutputSources, IsOneWhereNothingIsJoined) {
  ModelMaker m({{std::nullopt}, {4}});
  const std::string moved = m.node("Reshape", {m.node("Relu", {"x"}), m.integers({0, 2, 2})});
  const OutputSources sources = output_sources(translate(m.ending_in(moved), {4}).graph);
  EXPECT_THAT(sources.types, ElementsAre("ReLU"));
  EXPECT_EQ(sources.of_values.size(), 4U);
  EXPECT_THAT(sources.of_values, Each(0));
}

}  // namespace
}  // namespace steelyard::imports
