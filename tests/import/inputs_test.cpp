// The inputs of ONNX graphs: samples of any shape, several inputs, constants for each sample.
#include "steelyard/import/inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using testing::all_close;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

// What the network gives for one sample of the values 1, 2, ..., and where it finds them.
struct OneInput {
  GraphSpec graph;
  Tensor y;
};
OneInput of_one_input(const std::vector<OnnxDim>& dims, const Shape& sample) {
  ModelMaker m(dims);
  const Imported imported = translate(m.ending_in(m.node("Relu", {"x"})), sample);
  const Tensor x = Tensor::empty(sample);
  std::iota(x.span<float>().begin(), x.span<float>().end(), 1.0F);
  Shape batch = sample;
  batch.insert(batch.begin(), 1);
  return {imported.graph, output_of(imported, x.reshape(batch))};
}

TEST(Inputs, SamplesHaveAnyNumberOfDimensions) {
  for (const Shape& sample : {Shape{5}, {4, 5}, {2, 3, 4, 5}}) {
    std::vector<OnnxDim> dims{{std::nullopt, "batch"}};
    for (const std::int64_t size : sample) dims.push_back({size});
    const OneInput one = of_one_input(dims, sample);
    EXPECT_TRUE(one.graph.parts.empty());
    EXPECT_EQ(one.graph.output_sample, sample);
    EXPECT_EQ(one.y.data<float>()[4], 5);
  }
}

// Which no operation on images reads, but one without inputs is there.
TEST(Inputs, AreNotReadByNodesWithoutInputs) {
  ModelMaker m({{std::nullopt}, {8}, {8}, {3}});
  m.node("Conv", {});
  const SampleSpec sample = sample_of(m.ending_in(m.node("Relu", {"x"})));
  EXPECT_EQ(sample.shape, (Shape{8, 8, 3}));
}

// One index for each sample, as samples [1] have it.
TEST(Inputs, OneValueOfASampleIsAnInputWithoutDimensions) {
  ModelMaker m({{std::nullopt, "batch"}});
  m.model().inputs[0].type = "int64";
  const std::string table = m.reals("table", {3, 2}, {1, 2, 3, 4, 5, 6});
  const Imported imported = translate(m.ending_in(m.node("Gather", {table, "x"})), Shape{1});
  EXPECT_EQ(imported.graph.parts.at(0), (PartSpec{{"x", "batch", false, "int64"}, 0, {}}));
  const Tensor y = output_of(imported, Tensor::from<float>({2, 0}, {2, 1}));
  EXPECT_EQ(y.shape(), (Shape{2, 2}));
  EXPECT_EQ(y.data<float>()[0], 5);
  EXPECT_EQ(y.data<float>()[3], 2);
}

// As a constant that is made of a weight could be called.
TEST(Inputs, HaveNamesOfTheirOwn) {
  ModelMaker m({{std::nullopt}, {2}});
  m.model().inputs[0].name = "w#";
  const std::string y = m.node("MatMul", {"w#", m.reals("w", {2, 2}, {1, 2, 3, 4})});
  const Imported imported = translate(m.ending_in(y), {2});
  EXPECT_THAT(testing::values(output_of(imported, Tensor::from<float>({1, 10}, {1, 2}))),
              ElementsAre(31, 42));
}

// The file says [C, H, W] where an operation on images reads it, however few columns there are.
TEST(Inputs, ImagesThatConvReadsAreChannelsFirst) {
  ModelMaker m({{std::nullopt, "batch"}, {6}, {10}, {3}});
  const auto shape = [&] { return sample_of(m.model()).shape; };
  EXPECT_EQ(shape(), (Shape{6, 10, 3}));
  const std::string kernel = m.reals("kernel", {2, 6, 1, 1}, std::vector<float>(12, 1));
  m.ending_in(m.node("Conv", {"x", kernel}));
  EXPECT_EQ(shape(), (Shape{10, 3, 6}));
}

// Images of one channel: the data has that dimension and the file has not, and the other way round.
TEST(Inputs, ADimensionOfOneChannelMayBeLeftOut) {
  const std::vector<OnnxDim> rows{{std::nullopt}, {3}, {4}}, first{{std::nullopt}, {1}, {3}, {4}},
      last{{std::nullopt}, {3}, {4}, {1}};
  const auto part = [](const OneInput& one) { return one.graph.parts.at(0); };
  const OneInput none = of_one_input(rows, {3, 4, 1});
  EXPECT_EQ(part(none).shape, (Shape{3, 4}));
  EXPECT_EQ(none.y.shape(), (Shape{1, 3, 4}));
  const OneInput planes = of_one_input(first, {3, 4});
  EXPECT_EQ(part(planes), (PartSpec{{"x", "N", false}, 0, {3, 4, 1}}));
  EXPECT_EQ(planes.y.shape(), (Shape{1, 3, 4, 1}));
  EXPECT_FALSE(planes.graph.output.channels_last);
  const OneInput pixels = of_one_input(last, {3, 4});
  EXPECT_EQ(part(pixels), (PartSpec{{"x", "N", true}, 0, {3, 4, 1}}));
  for (const OneInput* one : {&none, &planes, &pixels}) {
    EXPECT_EQ(one->y.data<float>()[11], 12);
    EXPECT_EQ(text_of(graph_from(text_of(one->graph), "file")), text_of(one->graph));
  }
}

// Two inputs, one of whole numbers, whose order in the file is not that of the data.
OnnxModel of_two_inputs() {
  ModelMaker m({{std::nullopt, "batch"}, {2}, {3}});
  m.model().inputs[0].name = "pixels";
  m.model().inputs.push_back({"ids", "int64", {{std::nullopt, "batch"}, {std::nullopt, "length"}}});
  const std::string rows = m.node(
      "Gather", {m.reals("table.weight", {4, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}), "ids"});
  return m.ending_in(m.node("Add", {rows, "pixels"}));
}

TEST(Inputs, SeveralInputsLieOneAfterAnotherInASample) {
  const OnnxModel model = of_two_inputs();
  const Imported imported = translate(model, {{8}, {{"ids", {2}}, {"pixels", {2, 3}}}});
  EXPECT_THAT(imported.graph.parts,
              ElementsAre(PartSpec{{"pixels", "batch"}, 2, {2, 3}},
                          PartSpec{{"ids", "batch", false, "int64"}, 0, {2}}));
  const Tensor y = output_of(imported, Tensor::from<float>({3, 1, 10, 20, 30, 40, 50, 60}, {1, 8}));
  EXPECT_TRUE(all_close(y, Tensor::from<float>({19, 30, 41, 43, 54, 65}, {1, 2, 3}), 0, 0));
  EXPECT_EQ(imported.graph.input_ports()[1].type, "int64");
  EXPECT_THAT(imported.notes,
              ElementsAre("sizes of ids are free in test.onnx, but fixed in exports: the model has "
                          "several inputs"));
}

TEST(Inputs, SaysWhichInputsDoNotFit) {
  const OnnxModel model = of_two_inputs();
  const auto refusal = [&](const SampleSpec& sample) {
    return message_of<InputError>([&] { translate(model, sample); });
  };
  EXPECT_EQ(refusal({{8}, {{"pixels", {2, 3}}}}), "test.onnx: the data has no input 'ids'");
  EXPECT_EQ(refusal({{10}, {{"ids", {2}}, {"pixels", {2, 3}}, {"mask", {2}}}}),
            "test.onnx: no input is called 'mask'; there are pixels, ids");
  EXPECT_EQ(refusal({{8}, {{"ids", {2}}, {"pixels", {3, 2}}}}),
            "test.onnx: the input 'pixels' is [batch, 2, 3], the data has samples of [3, 2]");
  EXPECT_EQ(message_of<InputError>([&] { sample_of(model); }),
            "test.onnx: the input 'ids' [batch, length] has free sizes: say the shape of a sample "
            "(--sample ids=16)");
  const SampleSpec said = sample_of(model, {{"ids", {2}}});
  EXPECT_EQ(said.shape, (Shape{8}));
  EXPECT_EQ(said.inputs, (std::vector<NamedInput>{{"pixels", {2, 3}}, {"ids", {2}}}));
  OnnxModel fixed = model;
  fixed.inputs[1].dims[0] = {1};
  EXPECT_EQ(
      message_of<InputError>([&] { sample_of(fixed); }),
      "test.onnx: expected one batch for all inputs, got the input 'pixels' [batch, 2, 3] and "
      "the input 'ids' [1, length]: say which dimension of an input is the batch (--batch-axis "
      "ids=1, or model.batch_axis; the first is 0)");
}

TEST(Inputs, DamagedPartsAreRefused) {
  const Imported imported = translate(of_two_inputs(), {{8}, {{"ids", {2}}, {"pixels", {2, 3}}}});
  const auto refusal = [&](const std::function<void(PartSpec&)>& change) {
    GraphSpec graph = imported.graph;
    change(graph.parts[0]);
    return message_of<InputError>([&] { graph_from(text_of(graph), "file"); });
  };
  const std::string outside = "file: graph: an input outside of the sample";
  EXPECT_EQ(refusal([](PartSpec& part) { part.first = -1; }), outside);
  EXPECT_EQ(refusal([](PartSpec& part) { part.first = 3; }), outside);
  EXPECT_EQ(refusal([](PartSpec& part) {
              part.shape = {1L << 31, 1L << 31};
            }),
            "file: graph: a sample that is too large");
}

// Word encoders look up the row 0 for each word of each sample: a constant of the batch's shape.
TEST(Inputs, AConstantMayBeRepeatedForEachSample) {
  ModelMaker m({{std::nullopt, "batch"}, {2}, {3}});
  const std::string batch =
      m.node("Gather", {m.node("Shape", {"x"}), m.integers({0})}, {{"axis", std::int64_t{0}}});
  const std::string shape = m.node("Concat", {batch, m.integers({2})}, {{"axis", std::int64_t{0}}});
  m.model().initializers["kinds"] = {.shape = {1, 2}, .integers = {{1}, {0}}};
  const std::string kinds = m.node("Expand", {"kinds", shape});
  const std::string rows = m.node("Gather", {m.reals("table", {2, 3}, {0, 1, 2, 3, 4, 5}), kinds});
  const OnnxModel model = m.ending_in(m.node("Add", {"x", rows}));
  const Tensor y = output_of(translate(model, {2, 3}), Tensor::zeros({2, 2, 3}));
  EXPECT_TRUE(
      all_close(y, Tensor::from<float>({3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1, 2}, {2, 2, 3}), 0, 0));
  // What does not broadcast over the batch would need it.
  EXPECT_THAT(message_of<InputError>([&] {
                translate(m.ending_in(m.node("Add", {"x", m.node("Relu", {rows})})), {2, 3});
              }),
              HasSubstr("of a constant that is repeated for each sample"));
  // As the zeros that a recurrent network begins with.
  EXPECT_THAT(
      message_of<InputError>([&] {
        translate(m.ending_in(m.node("RNN", {"x", "kinds", "kinds", "", "", rows})), {2, 3});
      }),
      HasSubstr("(RNN): the operation is not supported"));
}

// Masks of what is padded choose between minus infinity and zeros of the mask's shape.
TEST(Inputs, AChoiceReadsAConstantThatIsRepeated) {
  ModelMaker m({{std::nullopt, "batch"}, {3}});
  const std::string zeros =
      m.node("Expand", {m.reals("zeros", {1, 3}, {0, 1, 2}), m.node("Shape", {"x"})});
  const std::string holds = m.node("Greater", {"x", m.number(0)});
  const Imported imported =
      translate(m.ending_in(m.node("Where", {holds, m.number(9), zeros})), {3});
  const Tensor y = output_of(imported, Tensor::from<float>({1, -1, -1, -1, 1, -1}, {2, 3}));
  EXPECT_TRUE(all_close(y, Tensor::from<float>({9, 1, 2, 0, 9, 2}, {2, 3}), 0, 0));
}

// The state before the first step of a network that is spelt out: zeros by its weights.
TEST(Inputs, AProductOfARepeatedConstantIsOne) {
  for (const bool tiled : {false, true}) {
    ModelMaker m({{std::nullopt, "batch"}, {2}});
    const std::string batch =
        m.node("Gather", {m.node("Shape", {"x"}), m.integers({0})}, {{"axis", std::int64_t{0}}});
    const auto with = [&](std::int64_t size) {
      return m.node("Concat", {batch, m.integers({size})}, {{"axis", std::int64_t{0}}});
    };
    const std::string state = tiled ? m.node("Tile", {m.reals("h", {1, 3}, {0, 0, 0}), with(1)})
                                    : m.node("ConstantOfShape", {with(3)});
    const std::string sum =
        m.node("Gemm", {state, m.weight("w", {2, 3}), m.reals("b", {2}, {5, 7})},
               {{"transB", std::int64_t{1}}});
    const Imported imported = translate(m.ending_in(m.node("Add", {"x", sum})), {2});
    const Tensor y = output_of(imported, Tensor::from<float>({1, 2, 3, 4}, {2, 2}));
    EXPECT_TRUE(all_close(y, Tensor::from<float>({6, 9, 8, 11}, {2, 2}), 0, 0));
  }
}

// Vision transformers put the token of the class in front of those of the image's parts.
TEST(Inputs, AConstantMayBeJoinedToEachSample) {
  const auto joined = [](const std::function<std::string(ModelMaker&)>& token) {
    ModelMaker m({{std::nullopt, "batch"}, {2}, {3}});
    return translate(m.ending_in(m.node("Concat", {token(m), "x"}, {{"axis", std::int64_t{1}}})),
                     {2, 3});
  };
  const auto token = [](ModelMaker& m) { return m.reals("token", {1, 1, 3}, {7, 8, 9}); };
  const Imported imported = joined([&](ModelMaker& m) {
    const std::string batch = m.node("Shape", {"x"}, {{"end", std::int64_t{1}}});
    const std::string shape =
        m.node("Concat", {batch, m.integers({1, 3})}, {{"axis", std::int64_t{0}}});
    return m.node("Expand", {token(m), shape});
  });
  // Whatever the samples are: not a number times 0 is none.
  const Tensor x = Tensor::from<float>({NAN, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}, {2, 2, 3});
  const Tensor y = output_of(imported, x);
  ASSERT_EQ(y.shape(), (Shape{2, 3, 3}));
  for (const std::int64_t first : {0, 9}) {
    for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(y.data<float>()[first + i], 7.0F + i);
  }
  EXPECT_EQ(y.data<float>()[9 + 3 + 5], 6);
  EXPECT_EQ(module_of(imported)->named_parameters().size(), 1U);
  // One for each sample of a batch is something else.
  EXPECT_THAT(message_of<InputError>([&] { joined(token); }),
              HasSubstr("a constant that is not repeated for each sample"));
}

// Channels of images are held last.
TEST(Inputs, AConstantMayBeJoinedToTheChannels) {
  ModelMaker m({{1}, {1}, {1}, {2}});
  const std::string edges = m.reals("edges", {1, 2, 1, 2}, {1, 2, 3, 4});
  const std::string y =
      m.node("Concat", {m.node("Relu", {"x"}), edges}, {{"axis", std::int64_t{1}}});
  const Imported imported = translate(m.ending_in(y), {1, 2, 1});
  const Tensor joined = output_of(imported, Tensor::from<float>({5, 6}, {1, 1, 2, 1}));
  EXPECT_TRUE(all_close(joined, Tensor::from<float>({5, 1, 3, 6, 2, 4}, {1, 1, 2, 3}), 0, 0));
}

}  // namespace
}  // namespace steelyard::imports
