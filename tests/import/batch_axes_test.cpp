// Inputs and outputs of ONNX graphs whose first dimension is not the batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

using Order = std::vector<std::int64_t>;

// A value of x, moved to that order of dimensions.
OnnxModel moved(ModelMaker& m, const Order& order, const std::vector<OnnxDim>& dims = {}) {
  const std::string turned = m.node("Transpose", {"x"}, {{"perm", order}});
  OnnxModel model = m.ending_in(m.node("Relu", {turned}));
  model.outputs[0].dims = dims;
  return model;
}

TEST(BatchAxes, AnOutputHasTheBatchWhereTheGraphMovesIt) {
  ModelMaker m({{std::nullopt, "batch"}, {3}, {2}});
  const Imported middle = translate(moved(m, {1, 0, 2}, {{3}, {std::nullopt, "n"}, {2}}), {3, 2});
  EXPECT_THAT(types_of(middle), ElementsAre("ReLU"));
  EXPECT_EQ(middle.graph.output_sample, (Shape{3, 2}));
  EXPECT_EQ(middle.graph.output.batch_axis, 1);
  EXPECT_EQ(middle.graph.output.batch, "n");
  ModelMaker other({{std::nullopt, "batch"}, {3}, {2}});
  const Imported last = translate(moved(other, {2, 1, 0}), {3, 2});
  EXPECT_EQ(last.graph.output_sample, (Shape{2, 3}));
  EXPECT_EQ(last.graph.output.batch_axis, 2);
  const Tensor y = output_of(last, Tensor::from<float>({1, 2, 3, 4, 5, 6}, {1, 3, 2}));
  EXPECT_THAT(testing::values(y), ElementsAre(1, 3, 5, 2, 4, 6));
}

TEST(BatchAxes, EachOfSeveralOutputsHasItsOwn) {
  ModelMaker m({{std::nullopt, "batch"}, {3}, {2}});
  OnnxModel model = moved(m, {1, 0, 2});
  model.nodes.push_back({.name = "sum",
                         .op = "ReduceSum",
                         .inputs = {"x"},
                         .outputs = {"sum"},
                         .attributes = {{"axes", Order{1}}}});
  model.opset = 11;
  model.outputs.push_back({"sum", "float", {{std::nullopt, "batch"}, {1}, {2}}});
  const Imported imported = translate(model, {3, 2});
  PartSpec steps{{model.outputs[0].name}, 0, {3, 2}};
  steps.port.batch_axis = 1;
  EXPECT_THAT(imported.graph.output_parts,
              ElementsAre(steps, PartSpec{{"sum", "batch"}, 6, {1, 2}}));
}

// Dimensions behind the batch's keep the file's order: they are no image's.
TEST(BatchAxes, OfFourDimensionsTheOthersStayInOrder) {
  ModelMaker m({{std::nullopt, "batch"}, {2}, {3}, {4}});
  const Imported imported = translate(moved(m, {1, 0, 2, 3}), {3, 4, 2});
  EXPECT_EQ(imported.graph.output_sample, (Shape{2, 3, 4}));
  EXPECT_EQ(imported.graph.output.batch_axis, 1);
  EXPECT_TRUE(imported.graph.output.channels_last);
}

TEST(BatchAxes, AnOutputThatMixesSamplesIsRefused) {
  ModelMaker m({{std::nullopt, "batch"}, {3}, {2}});
  const OnnxModel model = m.ending_in(m.node("Reshape", {"x", m.integers({-1, 2})}));
  EXPECT_THAT(message_of<InputError>([&] {
                translate(model, {3, 2});
              }),
              HasSubstr("expected a dimension of the batch alone, got [3*N, 2]"));
}

// x [batch, 3] and a state [2, batch, 3]: y = x + state[0], and the state times 2.
OnnxModel with_state(const std::vector<OnnxDim>& x, const std::vector<OnnxDim>& state) {
  ModelMaker m(x);
  m.model().inputs.push_back({"state", "float", state});
  const std::string first =
      m.node("Gather", {"state", m.number_of(0)}, {{"axis", std::int64_t{0}}});
  const std::string y = m.node("Add", {"x", first});
  const std::string next = m.node("Mul", {"state", m.number(2)});
  OnnxModel model = m.ending_in(y);
  model.outputs.push_back({next, "float", {}});
  return model;
}

void expect_state_is_read(const OnnxModel& model) {
  const SampleSpec sample = sample_of(model);
  EXPECT_EQ(sample.inputs, (std::vector<NamedInput>{{"x", {3}}, {"state", {2, 3}}}));
  const Imported imported = translate(model, sample);
  EXPECT_EQ(imported.graph.parts.at(0).port.batch_axis, 0);
  EXPECT_EQ(imported.graph.parts.at(1).port.batch_axis, 1);
  EXPECT_EQ(imported.graph.parts.at(1).shape, (Shape{2, 3}));
  EXPECT_EQ(imported.graph.output_parts.at(1).port.batch_axis, 1);
  const Tensor y = output_of(imported, Tensor::from<float>({1, 2, 3, 10, 20, 30, 40, 50, 60,  //
                                                            4, 5, 6, 70, 80, 90, 15, 25, 35},
                                                           {2, 9}));
  EXPECT_THAT(testing::values(y), ElementsAre(11, 22, 33, 20, 40, 60, 80, 100, 120,  //
                                              74, 85, 96, 140, 160, 180, 30, 50, 70));
}

TEST(BatchAxes, AnInputHasItWhereItsNameIs) {
  const OnnxModel model = with_state({{std::nullopt, "n"}, {3}}, {{2}, {std::nullopt, "n"}, {3}});
  expect_state_is_read(model);
  EXPECT_EQ(translate(model, sample_of(model)).graph.parts[1].port.batch, "n");
  // A name that says it counts more than a place.
  const auto axis = [](const std::vector<OnnxDim>& dims) {
    const OnnxModel alone = ModelMaker(dims).model();
    return batch_axis(alone, alone.inputs[0]);
  };
  EXPECT_EQ(axis({{std::nullopt, "time"}, {std::nullopt, "Batch_size"}, {3}}), 1);
  EXPECT_EQ(axis({{std::nullopt, "time"}, {std::nullopt, "n"}, {3}}), 0);
  EXPECT_EQ(axis({{1}, {3}, {std::nullopt, "height"}, {std::nullopt, "width"}}), 0);
}

TEST(BatchAxes, WhatTheFileDoesNotSayIsGiven) {
  for (const OnnxDim& one : {OnnxDim{1}, OnnxDim{std::nullopt}}) {
    OnnxModel model = with_state({one, {3}}, {{2}, one, {3}});
    EXPECT_THAT(
        message_of<InputError>([&] { sample_of(model); }),
        HasSubstr(": say which dimension of an input is the batch (--batch-axis state=1, or "
                  "model.batch_axis; the first is 0)"));
    choose_batch_axes(model, {{"state", 1}});
    expect_state_is_read(model);
  }
  OnnxModel model = with_state({{1}, {3}}, {{2}, {1}, {3}});
  EXPECT_EQ(message_of<InputError>([&] {
              choose_batch_axes(model, {{"h", 1}});
            }),
            "test.onnx: no input is called 'h'; there are x, state");
  EXPECT_EQ(
      message_of<InputError>([&] {
        choose_batch_axes(model, {{"state", 3}});
      }),
      "test.onnx: the input 'state' [2, 1, 3] has no dimension 3 (the first is 0) for the batch");
}

// As cells join their output and their memory to one state.
TEST(BatchAxes, JoinedStatesNeedNoPermutation) {
  ModelMaker m({{std::nullopt, "batch"}, {3}});
  const std::string zero = m.integers({0});
  const std::string a = m.node("Unsqueeze", {m.node("Relu", {"x"}), zero});
  const std::string b = m.node("Unsqueeze", {m.node("Neg", {"x"}), zero});
  const OnnxModel model = m.ending_in(m.node("Concat", {a, b}, {{"axis", std::int64_t{0}}}));
  const Imported imported = translate(model, {3});
  EXPECT_THAT(types_of(imported), ::testing::Not(::testing::Contains("Permute")));
  EXPECT_EQ(imported.graph.output.batch_axis, 1);
  const Tensor y = output_of(imported, Tensor::from<float>({1, -2, 3, 4, 5, -6}, {2, 3}));
  EXPECT_THAT(testing::values(y), ElementsAre(1, 0, 3, -1, 2, -3, 4, 5, 0, -4, -5, 6));
}

TEST(BatchAxes, SizesBesideItMayBeFree) {
  ModelMaker m({{std::nullopt, "time"}, {std::nullopt, "batch"}, {2}});
  const Imported imported =
      translate(moved(m, {2, 0, 1}, {{2}, {std::nullopt, "time"}, {}}), {5, 2});
  EXPECT_EQ(imported.graph.input.batch, "batch");
  EXPECT_EQ(imported.graph.input.batch_axis, 1);
  EXPECT_THAT(imported.graph.input.free, ElementsAre(std::pair(0, "time")));
  EXPECT_EQ(imported.graph.output.batch_axis, 2);
  EXPECT_THAT(imported.graph.output.free, ElementsAre(std::pair(1, "time")));
}

TEST(BatchAxes, AreKeptInTheGraphsText) {
  const OnnxModel model = with_state({{std::nullopt, "n"}, {3}}, {{2}, {std::nullopt, "n"}, {3}});
  GraphSpec graph = translate(model, sample_of(model)).graph;
  const std::string text = text_of(graph);
  EXPECT_THAT(text, HasSubstr("\"format\":2,"));
  const GraphSpec again = graph_from(text, "file");
  EXPECT_EQ(text_of(again), text);
  EXPECT_EQ(again.parts.at(1), graph.parts.at(1));
  EXPECT_EQ(again.output_parts, graph.output_parts);
  graph.parts[1].port.batch_axis = 3;
  EXPECT_EQ(message_of<InputError>([&] { graph_from(text_of(graph), "file"); }),
            "file: graph: the batch as dimension 3 beside those of [2, 3]");
}

}  // namespace
}  // namespace steelyard::imports
