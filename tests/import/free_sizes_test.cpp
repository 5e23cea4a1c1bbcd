// Sizes of images that a file leaves free: on which modules they depend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using testing::all_close;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::random_tensor;

using Ints = std::vector<std::int64_t>;
using Free = std::map<std::int64_t, std::string>;

std::string conv(ModelMaker& m, const std::string& x, std::int64_t in, std::int64_t out,
                 std::int64_t stride = 1) {
  const std::string name = "conv" + std::to_string(m.model().nodes.size());
  return m.node("Conv", {x, m.weight(name, {out, in, 3, 3})},
                {{"kernel_shape", Ints{3, 3}},
                 {"pads", Ints{1, 1, 1, 1}},
                 {"strides", Ints{stride, stride}}});
}

// Two halves of channels, of which one is halved in size and doubled again, and a gate of both.
OnnxModel of_any_size() {
  ModelMaker m(images(3));
  const std::string x = conv(m, "x", 3, 4);
  const auto half = [&](std::int64_t first) {
    return m.node("Slice", {x, m.integers({first}), m.integers({first + 2}), m.integers({1})});
  };
  std::string low =
      m.node("MaxPool", {half(0)}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  low = m.node("Resize", {conv(m, low, 2, 2), "", m.reals("scales", {4}, {1, 1, 2, 2})},
               {{"mode", std::string("nearest")},
                {"coordinate_transformation_mode", std::string("asymmetric")},
                {"nearest_mode", std::string("floor")}});
  const std::string both = m.node("Concat", {low, half(2)}, {{"axis", std::int64_t{1}}});
  const std::string mean = m.node("GlobalAveragePool", {both});
  const std::string gate =
      m.node("Sigmoid", {m.node("Conv", {mean, m.weight("gate", {4, 4, 1, 1})})});
  OnnxModel model = m.ending_in(conv(m, m.node("Mul", {both, gate}), 4, 2, 2));
  model.outputs[0].dims = {{std::nullopt, "batch"}, {2}, {std::nullopt, "half_h"}, {std::nullopt}};
  return model;
}

TEST(FreeSizes, NothingInANetworkOfConvolutionsDependsOnThem) {
  const Imported imported = translate(of_any_size(), {6, 4, 3});
  EXPECT_EQ(imported.graph.input.free, (Free{{0, "h"}, {1, "w"}}));
  EXPECT_EQ(imported.graph.output.free, (Free{{0, "half_h"}, {1, ""}}));
  EXPECT_THAT(imported.notes, IsEmpty());
  const GraphSpec read = graph_from(text_of(imported.graph), "test");
  EXPECT_EQ(read.input, imported.graph.input);
  EXPECT_EQ(read.output, imported.graph.output);
  // The modules compute what those of an import at another size do.
  const Tensor x = random_tensor({2, 8, 10, 3}, 3, DType::kF32);
  EXPECT_TRUE(all_close(output_of(imported, x), output_of(translate(of_any_size(), {8, 10, 3}), x),
                        1e-6, 1e-6));
}

// Each has sizes of its own, also one that is read inside.
TEST(FreeSizes, AreThoseOfEachOutput) {
  OnnxModel model = of_any_size();
  const std::string inner = model.nodes[0].outputs[0];
  const std::string whole = model.outputs[0].name;
  model.outputs.push_back(
      {inner, "float", {{std::nullopt, "batch"}, {4}, {std::nullopt, "h"}, {std::nullopt, "h"}}});
  const Imported imported = translate(model, {6, 4, 3});
  EXPECT_EQ(imported.graph.input.free, (Free{{0, "h"}, {1, "w"}}));
  EXPECT_EQ(imported.graph.output, PortSpec{});
  EXPECT_THAT(
      imported.graph.output_parts,
      ElementsAre(
          PartSpec{{whole, "batch", false, "float", {{0, "half_h"}, {1, ""}}}, 0, {3, 2, 2}},
          PartSpec{{inner, "batch", false, "float", {{0, ""}, {1, ""}}}, 12, {6, 4, 4}}));
  EXPECT_THAT(imported.notes, IsEmpty());
  const GraphSpec read = graph_from(text_of(imported.graph), "test");
  EXPECT_EQ(read.output_parts, imported.graph.output_parts);
}

TEST(FreeSizes, OnesThatTheFileFixesStayFixed) {
  OnnxModel model = of_any_size();
  model.inputs[0].dims[2] = {6};
  const Imported imported = translate(model, {6, 4, 3});
  EXPECT_EQ(imported.graph.input.free, (Free{{1, "w"}}));
  EXPECT_EQ(imported.graph.output.free, (Free{{1, ""}}));
  EXPECT_THAT(imported.notes, IsEmpty());
}

// Equal names would say equal sizes.
TEST(FreeSizes, NamesThatOthersHaveAreLeftOut) {
  OnnxModel model = of_any_size();
  for (OnnxDim& dim : model.inputs[0].dims) {
    if (!dim.size) dim.name = "?";
  }
  EXPECT_EQ(translate(model, {6, 4, 3}).graph.input.free, (Free{{0, ""}, {1, ""}}));
  // A batch that the file fixes is called N in exports.
  model.inputs[0].dims[0] = {1};
  model.inputs[0].dims[2].name = "N";
  model.outputs[0].dims[0] = {1};
  model.outputs[0].dims[2].name = "N";
  const Imported imported = translate(model, {6, 4, 3});
  EXPECT_EQ(imported.graph.input.free, (Free{{0, ""}, {1, "?"}}));
  EXPECT_EQ(imported.graph.output.free, (Free{{0, ""}, {1, ""}}));
}

TEST(FreeSizes, SaysWhatDependsOnThem) {
  ModelMaker m(images(3));
  const std::string rows = m.node("Flatten", {conv(m, "x", 3, 2)});
  const Imported rowed =
      translate(m.ending_in(m.node("MatMul", {rows, m.weight("fc.weight", {48, 5})})), {6, 4, 3});
  EXPECT_THAT(rowed.graph.input.free, IsEmpty());
  EXPECT_THAT(rowed.notes,
              ElementsAre("the height of 'x' is free in test.onnx, but fixed in exports: on it "
                          "depends MatMul_2 (Linear)",
                          "the width of 'x' is free in test.onnx, but fixed in exports: on it "
                          "depends MatMul_2 (Linear)"));
  // An output of one size, whatever the input's is.
  ModelMaker n(images(3));
  const Imported resized = translate(
      n.ending_in(n.node("Resize", {conv(n, "x", 3, 2), "", "", n.integers({1, 2, 12, 4})},
                         {{"mode", std::string("nearest")},
                          {"coordinate_transformation_mode", std::string("asymmetric")},
                          {"nearest_mode", std::string("floor")}})),
      {6, 4, 3});
  EXPECT_THAT(resized.graph.input.free, IsEmpty());
  EXPECT_THAT(resized.notes[0], ::testing::EndsWith("on it depends Resize_1 (Resize)"));
}

// Twice an even size is even.
TEST(FreeSizes, AreNotThoseOfEvenSizesAlone) {
  const auto notes = [](const std::string& op,
                        std::map<std::string, OnnxAttributeValue> attributes) {
    ModelMaker m(images(3));
    const std::string x = conv(m, "x", 3, 3);
    std::vector<std::string> inputs{x};
    if (op == "Conv") inputs.push_back(m.weight("w", {4, 3, 3, 3}));
    const Imported imported = translate(m.ending_in(m.node(op, inputs, attributes)), {6, 6, 3});
    EXPECT_THAT(imported.graph.input.free, IsEmpty());
    return imported.notes;
  };
  const auto both = [](const std::string& reader) {
    const std::string end = " of 'x' is free in test.onnx, but fixed in exports: on it depends ";
    return ElementsAre("the height" + end + reader, "the width" + end + reader);
  };
  const Ints two{2, 2};
  const std::int64_t yes = 1;
  EXPECT_THAT(notes("Conv", {{"kernel_shape", Ints{3, 3}},
                             {"strides", two},
                             {"auto_pad", std::string("SAME_UPPER")}}),
              both("Conv_1 (Pad)"));
  EXPECT_THAT(notes("MaxPool", {{"kernel_shape", two}, {"strides", two}, {"ceil_mode", yes}}),
              both("MaxPool_1 (MaxPool2d)"));
  EXPECT_THAT(notes("AveragePool", {{"kernel_shape", two}, {"strides", two}, {"ceil_mode", yes}}),
              both("AveragePool_1 (AvgPool2d)"));
}

// What fixes sizes of square images in front of a convolution, as notes say it.
std::vector<std::string> readers(const std::function<std::string(ModelMaker&)>& make,
                                 std::int64_t size) {
  ModelMaker m(images(3));
  Imported imported = translate(m.ending_in(conv(m, make(m), 3, 2)), {size, size, 3});
  std::erase_if(imported.notes, [](const std::string& note) { return note.ends_with("weights"); });
  EXPECT_EQ(imported.graph.input.free.size() + imported.notes.size(), 2U);
  std::vector<std::string> names;
  for (const std::string& note : imported.notes) {
    names.push_back(note.substr(note.find("depends ") + std::string("depends ").size()));
  }
  return names;
}

// The sample's size, twice that and one row more leave the same rests.
TEST(FreeSizes, AreNotThoseOfWindowsThatPadOtherRests) {
  const Ints two{2, 2}, four{4, 4};
  const std::int64_t yes = 1;
  const auto same = [&](ModelMaker& m, const std::string& x) {
    return m.node("Conv", {x, m.weight("w", {3, 3, 3, 3})},
                  {{"strides", two}, {"auto_pad", std::string("SAME_UPPER")}});
  };
  const auto doubled = [](ModelMaker& m, const std::string& x) {
    return m.node("Upsample", {x, m.reals("scales", {4}, {1, 1, 2, 2})});
  };
  // A row more every fourth row.
  const auto quarter = [](ModelMaker& m) { return conv(m, conv(m, "x", 3, 3, 2), 3, 3, 2); };
  EXPECT_THAT(readers(
                  [&](ModelMaker& m) {
                    return m.node("MaxPool", {quarter(m)},
                                  {{"kernel_shape", two}, {"strides", two}, {"ceil_mode", yes}});
                  },
                  63),
              ElementsAre("MaxPool_2 (MaxPool2d)", "MaxPool_2 (MaxPool2d)"));
  EXPECT_THAT(readers([&](ModelMaker& m) { return same(m, quarter(m)); }, 63),
              ElementsAre("Conv_2 (Pad)", "Conv_2 (Pad)"));
  EXPECT_THAT(readers(
                  [&](ModelMaker& m) {
                    return m.node("MaxPool", {"x"},
                                  {{"kernel_shape", two}, {"strides", four}, {"ceil_mode", yes}});
                  },
                  18),
              ElementsAre("MaxPool_0 (MaxPool2d)", "MaxPool_0 (MaxPool2d)"));
  // Rows that fit again only where two strides together leave another rest.
  EXPECT_THAT(readers(
                  [&](ModelMaker& m) {
                    const std::string half = same(m, "x");
                    return m.node("Add", {half, doubled(m, same(m, half))});
                  },
                  40),
              ElementsAre("Conv_0 (Pad)", "Conv_0 (Pad)"));
  // The padding of even sizes, of which alone the halves that are doubled fit.
  EXPECT_THAT(readers(
                  [&](ModelMaker& m) {
                    return m.node("Add", {"x", doubled(m, same(m, "x"))});
                  },
                  6),
              IsEmpty());
}

TEST(FreeSizes, AreNotThoseThatABoundCutsOff) {
  // The first 500 columns of larger images, behind a Resize, which has a largest size itself.
  EXPECT_THAT(
      readers(
          [&](ModelMaker& m) {
            const std::string scales = m.reals("scales", {4}, {1, 1, 2, 2});
            const std::string wide = m.node("Upsample", {"x", scales});
            return m.node("Slice", {wide, m.integers({0}), m.integers({500}), m.integers({3})});
          },
          12),
      ElementsAre("Slice_1 (Slice)"));
  // The first 100 rows of larger images.
  for (const bool from_shape : {false, true}) {
    EXPECT_THAT(readers(
                    [&](ModelMaker& m) {
                      std::string end = m.integers({100});
                      if (from_shape) {
                        const std::string shape = m.node("Shape", {"x"});
                        end = m.node("Min", {m.node("Gather", {shape, m.integers({2})}), end});
                      }
                      m.node("Slice", {"x", m.integers({0}), end, m.integers({2})});
                      m.model().nodes.back().name = "crop";
                      return m.model().nodes.back().outputs[0];
                    },
                    16),
                ElementsAre("crop (Slice)"));
  }
}

TEST(FreeSizes, DamagedOnesAreRefused) {
  GraphSpec graph = translate(of_any_size(), {6, 4, 3}).graph;
  graph.input.free = {{3, "h"}};
  EXPECT_EQ(testing::message_of<InputError>([&] { graph_from(text_of(graph), "test"); }),
            "test: graph: a free dimension 3 of [6, 4, 3]");
}

// The length of sequences.
TEST(FreeSizes, OfSequences) {
  ModelMaker m({{std::nullopt, "batch"}, {3}, {std::nullopt, "length"}});
  const Imported imported = translate(
      m.ending_in(m.node("Relu", {m.node("Conv", {"x", m.weight("w", {2, 3, 3})},
                                         {{"kernel_shape", Ints{3}}, {"pads", Ints{1, 1}}})})),
      {3, 8});
  EXPECT_EQ(imported.graph.input.free, (Free{{1, "length"}}));
  EXPECT_EQ(imported.graph.output.free, (Free{{1, ""}}));
  const std::string pooled = m.node("MaxPool", {"x"}, {{"kernel_shape", Ints{2}}});
  const std::string wide =
      m.node("ConvTranspose", {pooled, m.weight("t", {3, 2, 3})}, {{"strides", Ints{2}}});
  EXPECT_EQ(translate(m.ending_in(wide), {3, 8}).graph.input.free, (Free{{1, "length"}}));
}

}  // namespace
}  // namespace steelyard::imports
