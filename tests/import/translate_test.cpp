// What ONNX graphs become: recognised patterns, layouts, names, shapes, refusals.
#include "steelyard/import/translate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using testing::all_close;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;
using testing::random_tensor;

using Ints = std::vector<std::int64_t>;

std::string conv(ModelMaker& m, const std::string& x, const std::string& name, std::int64_t in,
                 std::int64_t out, std::int64_t kernel = 1) {
  const std::int64_t pad = kernel / 2;
  return m.node("Conv", {x, m.weight(name + ".weight", {out, in, kernel, kernel})},
                {{"kernel_shape", Ints{kernel, kernel}}, {"pads", Ints{pad, pad, pad, pad}}});
}

std::string norm(ModelMaker& m, const std::string& x, const std::string& name, std::int64_t c) {
  return m.node("BatchNormalization",
                {x, m.weight(name + ".weight", {c}), m.weight(name + ".bias", {c}),
                 m.weight(name + ".mean", {c}),
                 m.reals(name + ".var", {c}, std::vector<float>(static_cast<std::size_t>(c), 2))});
}

// A squeeze-and-excite block as exporters write it.
OnnxModel squeeze_excite() {
  ModelMaker m(images(3));
  std::string x = norm(m, conv(m, "x", "stem", 3, 4, 3), "stem_bn", 4);
  const std::string clip =
      m.node("Clip", {m.node("Add", {x, m.number(3)}), m.number(0), m.number(6)});
  x = m.node("Div", {m.node("Mul", {x, clip}), m.number(6)});
  std::string gate = m.node("GlobalAveragePool", {x});
  gate = m.node("Add", {conv(m, gate, "squeeze", 4, 2), m.weight("offset", {1, 2, 1, 1})});
  gate = conv(m, m.node("Relu", {gate}), "excite", 2, 4);
  gate = m.node("HardSigmoid", {gate}, {{"alpha", 0.2F}, {"beta", 0.5F}});
  x = m.node("Mul", {x, gate});
  x = m.node("GlobalAveragePool", {x});
  const std::string batch =
      m.node("Slice", {m.node("Shape", {x}), m.integers({0}), m.integers({1}), m.integers({0})});
  x = m.node("Reshape",
             {x, m.node("Concat", {batch, m.integers({4})}, {{"axis", std::int64_t{0}}})});
  x = m.node("Add", {m.node("MatMul", {x, m.weight("fc.w_0", {4, 2})}), m.weight("b", {2})});
  return m.ending_in(m.node("Identity", {m.node("Softmax", {x})}));
}

TEST(Translate, ASqueezeExciteNetworkNeedsNoPermutation) {
  const Imported imported = translate(squeeze_excite(), {6, 5, 3});
  EXPECT_THAT(types_of(imported), ElementsAre("Conv2d", "BatchNorm2d", "Hardswish", "GlobalAvgPool",
                                              "Reshape", "Conv2d", "ReLU", "Conv2d", "HardSigmoid",
                                              "Mul", "GlobalAvgPool", "Linear"));
  EXPECT_EQ(imported.graph.head, "Softmax");
  EXPECT_EQ(imported.graph.output_sample, Shape{2});
  EXPECT_EQ(imported.graph.input,
            (PortSpec{.name = "x", .batch = "batch", .free = {{0, "h"}, {1, "w"}}}));
  EXPECT_EQ(imported.graph.nodes[0].name, "stem");
  EXPECT_EQ(imported.graph.nodes.back().name, "fc");
}

TEST(Translate, TheBatchStaysFree) {
  const Imported imported = translate(squeeze_excite(), {6, 5, 3});
  const Tensor x = random_tensor({5, 6, 5, 3}, 3, DType::kF32);
  const Tensor all = output_of(imported, x);
  ASSERT_EQ(all.shape(), (Shape{5, 2}));
  for (std::int64_t i = 0; i < 5; ++i) {
    const Tensor one = Tensor::from(
        std::vector<float>(x.data<float>() + i * 90, x.data<float>() + (i + 1) * 90), {1, 6, 5, 3});
    const Tensor expected = output_of(imported, one);
    EXPECT_NEAR(all.data<float>()[2 * i], expected.data<float>()[0], 1e-6);
    EXPECT_NEAR(all.data<float>()[2 * i] + all.data<float>()[2 * i + 1], 1, 1e-6);
  }
}

TEST(Translate, PartsOfShapesKeepTheBatchFree) {
  ModelMaker m({{std::nullopt}, {2}, {3}});
  const std::string batch = m.node("Shape", {"x"}, {{"end", std::int64_t{1}}});
  const std::string rest = m.node("Div", {m.node("Size", {"x"}), batch});
  const std::string shape = m.node("Concat", {batch, rest}, {{"axis", std::int64_t{0}}});
  const Imported imported = translate(m.ending_in(m.node("Reshape", {"x", shape})), {2, 3});
  EXPECT_EQ(output_of(imported, Tensor::zeros({4, 2, 3})).shape(), (Shape{4, 6}));
}

TEST(Translate, PositionsInAnyOrderAreSlicesThatAreJoined) {
  ModelMaker m({{std::nullopt}, {6}});
  const Imported some = translate(m.ending_in(m.node("Gather", {"x", m.integers({-1, 4, 3, 0, 0})},
                                                     {{"axis", std::int64_t{1}}})),
                                  {6});
  EXPECT_THAT(types_of(some), ElementsAre("Slice", "Slice", "Slice", "Cat"));
  const Tensor x = Tensor::from<float>({0, 1, 2, 3, 4, 5}, {1, 6});
  EXPECT_TRUE(all_close(output_of(some, x), Tensor::from<float>({5, 4, 3, 0, 0}, {1, 5}), 0, 0));
  ModelMaker n({{std::nullopt}, {6}});
  const Imported mirrored = translate(n.ending_in(n.node("Pad", {"x", n.integers({0, 2, 0, 1})},
                                                         {{"mode", std::string("reflect")}})),
                                      {6});
  EXPECT_TRUE(all_close(output_of(mirrored, x),
                        Tensor::from<float>({2, 1, 0, 1, 2, 3, 4, 5, 4}, {1, 9}), 0, 0));
}

// Operands of several shapes, constants among them.
TEST(Translate, ExtremesTakeAnyNumberOfOperands) {
  ModelMaker m({{std::nullopt}, {2}, {2}});
  const std::string row = m.node("ReduceMin", {"x"}, {{"axes", Ints{1}}});
  const std::string y = m.node("Max", {m.reals("c", {2}, {0, -9}), "x", row, m.number(-1)});
  const Imported imported = translate(m.ending_in(y), {2, 2});
  const Tensor x = Tensor::from<float>({-3, -4, 5, -6}, {1, 2, 2});
  EXPECT_TRUE(
      all_close(output_of(imported, x), Tensor::from<float>({0, -1, 5, -1}, {1, 2, 2}), 0, 0));
}

TEST(Translate, BiasesJoinTheirLayers) {
  ModelMaker m(images(2));
  const std::string x = m.node("Add", {conv(m, "x", "c", 2, 3), m.weight("b", {1, 3, 1, 1})});
  const Imported imported = translate(m.ending_in(x), {4, 4, 2});
  EXPECT_THAT(types_of(imported), ElementsAre("Conv2d"));
  EXPECT_EQ(imported.weights.size(), 2U);
}

// Rows as images, as exporters of sequences have them.
TEST(Translate, MovesBesideEachOtherAreOneAndABiasBehindThemJoins) {
  ModelMaker m({{std::nullopt}, {6}, {3}});
  std::string x = m.node("Transpose", {"x"}, {{"perm", Ints{0, 2, 1}}});
  x = m.node("Unsqueeze", {x, m.integers({3})});
  x = m.node("Transpose", {x}, {{"perm", Ints{0, 1, 3, 2}}});
  x = m.node("Conv", {x, m.weight("c.weight", {4, 3, 1, 5})}, {{"kernel_shape", Ints{1, 5}}});
  x = m.node("Add", {m.node("Squeeze", {x, m.integers({2})}), m.weight("b", {1, 4, 1})});
  const Imported imported = translate(m.ending_in(m.node("Relu", {x})), {6, 3});
  EXPECT_THAT(types_of(imported),
              ElementsAre("Reshape", "Permute", "Conv2d", "Reshape", "ReLU", "Permute"));
  EXPECT_EQ(std::get<bool>(imported.graph.nodes[2].options.at("bias")), true);
  ASSERT_EQ(imported.weights.size(), 2U);
  const Tensor input = random_tensor({2, 6, 3}, 1, DType::kF32);
  const Tensor y = output_of(imported, input);
  ASSERT_EQ(y.shape(), (Shape{2, 4, 2}));
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const std::int64_t n = i / 8, channel = i / 2 % 4, at = i % 2;
    double sum = double{m.model().initializers["b"].reals[static_cast<std::size_t>(channel)]};
    for (std::int64_t k = 0; k < 15; ++k) {  // [in, position]
      const float w =
          m.model().initializers["c.weight"].reals[static_cast<std::size_t>(channel * 15 + k)];
      sum += double{w} * double{input.data<float>()[n * 18 + (at + k % 5) * 3 + k / 5]};
    }
    EXPECT_NEAR(y.data<float>()[i], std::max(sum, 0.0), 1e-5);
  }
}

TEST(Translate, ANetworkOfTfsLayoutNeedsNoPermutation) {
  ModelMaker m({{std::nullopt}, {6}, {5}, {3}});  // [N, H, W, C]
  std::string x = m.node("Transpose", {"x"}, {{"perm", Ints{0, 3, 1, 2}}});
  x = m.node("Relu", {conv(m, x, "c", 3, 4, 3)});
  x = m.node("Transpose", {x}, {{"perm", Ints{0, 2, 3, 1}}});
  const Imported imported = translate(m.ending_in(x), {6, 5, 3});
  EXPECT_THAT(types_of(imported), ElementsAre("Conv2d", "ReLU"));
  EXPECT_TRUE(imported.graph.input.channels_last);
  EXPECT_TRUE(imported.graph.output.channels_last);
}

TEST(Translate, AnotherOrderIsAskedForWhereAnOperationNeedsIt) {
  ModelMaker m(images(3));
  std::string x = conv(m, "x", "c", 3, 4);
  x = m.node("Reshape", {x, m.integers({0, 2, 2, 5, 6})});  // channel shuffle
  x = m.node("Transpose", {x}, {{"perm", Ints{0, 2, 1, 3, 4}}});
  x = m.node("Reshape", {x, m.integers({-1, 4, 5, 6})});
  const Imported imported = translate(m.ending_in(conv(m, x, "d", 4, 1)), {5, 6, 3});
  EXPECT_THAT(types_of(imported), ElementsAre("Conv2d", "Permute", "Reshape", "Permute", "Reshape",
                                              "Permute", "Conv2d"));
  EXPECT_EQ(output_of(imported, Tensor::zeros({2, 5, 6, 3})).shape(), (Shape{2, 5, 6, 1}));
}

TEST(Translate, FlattensInOnnxsOrder) {
  ModelMaker m(images(2));
  const Imported imported = translate(m.ending_in(m.node("Flatten", {"x"})), {2, 3, 2});
  EXPECT_THAT(types_of(imported), ElementsAre("Flatten"));
  const Tensor x = random_tensor({1, 2, 3, 2}, 1, DType::kF32);
  const Tensor y = output_of(imported, x);
  for (std::int64_t c = 0; c < 2; ++c) {
    for (std::int64_t pixel = 0; pixel < 6; ++pixel) {
      EXPECT_EQ(y.data<float>()[c * 6 + pixel], x.data<float>()[pixel * 2 + c]);
    }
  }
}

// Volumes have no Flatten of their own.
TEST(Translate, FlattensVolumesInOnnxsOrder) {
  ModelMaker m({{std::nullopt}, {3}, {2}, {4}, {5}});
  const std::string x = m.node("Transpose", {"x"}, {{"perm", Ints{0, 4, 1, 2, 3}}});
  const Imported imported = translate(m.ending_in(m.node("Flatten", {x})), {3, 2, 4, 5});
  const Tensor in = random_tensor({1, 3, 2, 4, 5}, 1, DType::kF32);
  const Tensor y = output_of(imported, in);
  for (std::int64_t c = 0; c < 5; ++c) {
    for (std::int64_t i = 0; i < 24; ++i) {
      EXPECT_EQ(y.data<float>()[c * 24 + i], in.data<float>()[i * 5 + c]);
    }
  }
}

TEST(Translate, ConstantsFollowTheLayout) {
  ModelMaker m(images(2));
  const std::string x = conv(m, "x", "c", 2, 2);
  const std::string scaled =
      m.node("Mul", {m.node("Relu", {x}), m.reals("scale", {2, 1, 1}, {2, 3})});
  const Imported imported =
      translate(m.ending_in(m.node("Sub", {m.number(1), m.node("Relu", {scaled})})), {1, 2, 2});
  EXPECT_THAT(types_of(imported), ElementsAre("Conv2d", "ReLU", "MulConstant", "ReLU", "Affine"));
  EXPECT_EQ(imported.graph.nodes[2].options.at("shape"), OptionValue(Ints{1, 1, 1, 2}));
  EXPECT_EQ(imported.graph.nodes[2].options.at("trainable"), OptionValue(true));
  EXPECT_EQ(imported.graph.nodes[4].options.at("slope"), OptionValue(-1.0));
  EXPECT_EQ(imported.graph.nodes[4].options.at("offset"), OptionValue(1.0));
}

TEST(Translate, LayersTakeTheFactorsAndSumsBehindThem) {
  const auto network = [](bool with_arithmetic) {
    ModelMaker m(images(2));
    std::string x = conv(m, "x", "c", 2, 2);
    if (with_arithmetic) {
      x = m.node("Add", {m.number(3), m.node("Mul", {x, m.reals("scale", {1, 2, 1, 1}, {2, -3})})});
      x = m.node("Div", {x, m.number(4)});
    }
    return translate(m.ending_in(x), {1, 2, 2});
  };
  const Imported plain = network(false), scaled = network(true);
  EXPECT_THAT(types_of(scaled), ElementsAre("Conv2d"));
  const Tensor x = testing::random_tensor({2, 1, 2, 2}, 1, DType::kF32);
  const Tensor before = output_of(plain, x), after = output_of(scaled, x);
  for (std::int64_t i = 0; i < before.size(); ++i) {
    const float factor = i % 2 == 0 ? 2 : -3;
    EXPECT_FLOAT_EQ(after.data<float>()[i], (before.data<float>()[i] * factor + 3) / 4);
  }
}

TEST(Translate, AFixedBatchIsFreed) {
  ModelMaker m({{1}, {2}, {2}, {3}});
  const std::string x = m.node("Reshape", {m.node("Relu", {"x"}), m.integers({1, -1})});
  const Imported imported = translate(m.ending_in(x), {2, 3, 2});
  EXPECT_EQ(output_of(imported, Tensor::zeros({7, 2, 3, 2})).shape(), (Shape{7, 12}));
}

TEST(Translate, UnevenPaddingIsALayerOfItsOwn) {
  ModelMaker m(images(2));
  const std::string x = m.node("Conv", {"x", m.weight("w", {2, 2, 3, 3})},
                               {{"strides", Ints{2, 2}}, {"auto_pad", std::string("SAME_UPPER")}});
  const Imported imported = translate(m.ending_in(x), {4, 4, 2});
  EXPECT_THAT(types_of(imported), ElementsAre("Pad", "Conv2d"));
  EXPECT_EQ(imported.graph.output_sample, (Shape{2, 2, 2}));
}

TEST(Translate, NamesAreLegalAndUnique) {
  ModelMaker m({{std::nullopt}, {2}});
  m.model().nodes = {{.name = "/a/b.c", .op = "Relu", .inputs = {"x"}, .outputs = {"1"}},
                     {.name = "a_b_c", .op = "Sigmoid", .inputs = {"1"}, .outputs = {"2"}},
                     {.name = "", .op = "Relu", .inputs = {"2"}, .outputs = {"input"}},
                     {.name = "::", .op = "Relu", .inputs = {"input"}, .outputs = {"!"}}};
  EXPECT_THAT(names_of(translate(m.ending_in("!"), {2})),
              ElementsAre("a_b_c", "a_b_c_2", "input_2", "ReLU"));
}

// --- refusals

TEST(Translate, ListsEveryNodeThatStandsInTheWay) {
  ModelMaker m(images(2));
  std::string x = m.node("GridSample", {"x"});
  x = conv(m, m.node("Relu", {x}), "c", 2, 2);
  x = m.node("Det", {x});
  x = m.node("Pad", {m.node("Add", {x, "x"}), m.integers({0, 0, 0, 0, 0, 0, 1, 1})},
             {{"mode", std::string("reflect")}});
  const std::string y =
      m.node("MaxPool", {"x"}, {{"kernel_shape", Ints{2, 2}}, {"dilations", Ints{2, 2}}});
  m.model().nodes.back().name = "pool\n";
  const OnnxModel model = m.ending_in(m.node("Add", {x, y}));
  try {
    translate(model, {8, 8, 2});
    FAIL() << "imported";
  } catch (const UnsupportedGraph& error) {
    std::vector<std::string> lines;
    for (const UnsupportedNode& node : error.nodes()) lines.push_back(to_string(node));
    EXPECT_THAT(lines, ElementsAre("GridSample_0 (GridSample): the operation is not supported",
                                   "Det_3 (Det): the operation is not supported",
                                   "pool\\x0a (MaxPool): dilations are not supported"));
    EXPECT_THAT(error.what(), HasSubstr("test.onnx: 3 nodes cannot be imported: GridSample_0"));
  }
}

TEST(Translate, SaysWhatDoesNotFit) {
  const auto refusal = [](const std::function<void(ModelMaker&)>& change, const Shape& sample) {
    ModelMaker m(images(3));
    m.ending_in(m.node("Relu", {"x"}));
    change(m);
    return message_of<InputError>([&] { translate(m.model(), sample); });
  };
  const auto nothing = [](ModelMaker&) {};
  EXPECT_EQ(refusal(nothing, {28, 28, 1}),
            "test.onnx: the input 'x' is [batch, 3, h, w], the data has samples of [28, 28, 1] "
            "(image [height, width, channels])");
  EXPECT_THAT(refusal(nothing, {28}), HasSubstr("the data has samples of [28]"));
  EXPECT_EQ(
      refusal([](ModelMaker& m) { m.model().inputs[0].type = "uint8"; }, {4, 4, 3}),
      "test.onnx: 1 node cannot be imported: x (input): expected floats, int32, int64 or bool, got "
      "uint8");
  EXPECT_EQ(refusal([](ModelMaker& m) { m.model().inputs[0].type = "int32"; }, {4, 4, 3}),
            "test.onnx: 1 node cannot be imported: Relu_0 (Relu): of whole numbers");
  EXPECT_EQ(
      refusal(
          [](ModelMaker& m) {
            m.model().inputs.push_back({"mask", "float", images(1)});
          },
          {4, 4, 3}),
      "test.onnx: the inputs are x, mask, the data has one: data.inputs names those of the data");
  EXPECT_EQ(refusal([](ModelMaker& m) { m.model().outputs.clear(); }, {4, 4, 3}),
            "test.onnx: 1 node cannot be imported: test.onnx (outputs): expected at least one, got "
            "none");
  EXPECT_EQ(refusal([](ModelMaker& m) { m.ending_in("x"); }, {4, 4, 3}),
            "test.onnx: the output 'x' is the input: the graph has no operation");
}

TEST(Translate, SaysOnceThatAModelIsQuantized) {
  ModelMaker m(images(3));
  const std::string codes = m.node("QuantizeLinear", {"x", m.number(0.5F)});
  m.ending_in(m.node("Relu", {m.node("DequantizeLinear", {codes, m.number(0.5F)})}));
  EXPECT_EQ(message_of<InputError>([&] {
              translate(m.model(), {4, 4, 3});
            }),
            "test.onnx: the model has integers already (2 nodes, the first is QuantizeLinear_0, a "
            "QuantizeLinear): import the float model that it was made of");
}

TEST(Translate, ASampleOfAFileIsItsFixedSizes) {
  const auto sample = [](const std::vector<OnnxDim>& dims) {
    return sample_of(ModelMaker(dims).model()).shape;
  };
  EXPECT_EQ(sample({{1}, {3}, {10}, {20}}), (Shape{10, 20, 3}));
  EXPECT_EQ(sample({{1}, {10}, {20}, {3}}), (Shape{10, 20, 3}));
  EXPECT_EQ(sample({{std::nullopt}, {7}}), (Shape{7}));
  const OnnxModel free = ModelMaker(images(3)).model();
  EXPECT_EQ(message_of<InputError>([&] { sample_of(free); }),
            "test.onnx: the input 'x' [batch, 3, h, w] has free sizes: say the shape of a sample "
            "(--sample 48,192,3)");
}

// The page for users lists what the table of operations has.
TEST(Translate, ThePageListsEveryOperation) {
  std::ifstream file(STEELYARD_IMPORT_PAGE);
  std::stringstream page;
  page << file.rdbuf();
  std::string expected;
  for (const SupportedOperation& row : supported_operations()) {
    expected += "| " + row.op + " | " + row.note + " |\n";
  }
  EXPECT_THAT(page.str(), HasSubstr(expected));
}

// What exporters leave in a graph although it changes nothing.
TEST(Translate, LeavesOutWhatChangesNothing) {
  using Node = std::function<std::string(ModelMaker&, const std::string&)>;
  const Node nothings[] = {[](ModelMaker& m, const std::string& x) {
                             return m.node("Pad", {x, m.integers({0, 0, 0, 0, 0, 0, 0, 0})});
                           },
                           [](ModelMaker& m, const std::string& x) {
                             return m.node("Resize", {x, "", m.reals("scales", {4}, {1, 1, 1, 1})});
                           },
                           [](ModelMaker& m, const std::string& x) {
                             return m.node("Split", {x}, {{"axis", std::int64_t{1}}});
                           }};
  for (const Node& nothing : nothings) {
    ModelMaker m(images(3));
    const std::string x = nothing(m, m.node("Relu", {"x"}));
    const Imported imported = translate(m.ending_in(conv(m, x, "c", 3, 4)), {6, 5, 3});
    EXPECT_THAT(types_of(imported), ElementsAre("ReLU", "Conv2d"));
  }
}

// A Pad of its own in front of a window that pads too.
TEST(Translate, WindowsTakeThePadInFrontOfThem) {
  const auto padded = [](const std::string& op, Ints pads, float value,
                         std::map<std::string, OnnxAttributeValue> attributes) {
    ModelMaker m(images(3));
    std::vector<std::string> inputs{m.node("Pad", {"x", m.integers(pads), m.number(value)})};
    attributes["kernel_shape"] = Ints{3, 3};
    if (op == "Conv") inputs.push_back(m.weight("c.weight", {4, 3, 3, 3}));
    return translate(m.ending_in(m.node(op, inputs, attributes)), {6, 5, 3});
  };
  const auto plain = [](const std::string& op,
                        std::map<std::string, OnnxAttributeValue> attributes) {
    ModelMaker m(images(3));
    std::vector<std::string> inputs{"x"};
    attributes["kernel_shape"] = Ints{3, 3};
    if (op == "Conv") inputs.push_back(m.weight("c.weight", {4, 3, 3, 3}));
    return translate(m.ending_in(m.node(op, inputs, attributes)), {6, 5, 3});
  };
  constexpr float kLowestFloat = -std::numeric_limits<float>::infinity();
  const Tensor x = random_tensor({2, 6, 5, 3}, 5, DType::kF32);
  const auto expect_equal = [&](const Imported& a, const Imported& b) {
    EXPECT_EQ(types_of(a), types_of(b));
    EXPECT_TRUE(all_close(output_of(a, x), output_of(b, x), 0, 0));
  };
  const Ints one{0, 0, 1, 1, 0, 0, 1, 1};
  expect_equal(padded("Conv", one, 0, {{"auto_pad", "VALID"}}),
               plain("Conv", {{"pads", Ints{1, 1, 1, 1}}}));
  expect_equal(padded("Conv", {0, 0, 2, 0, 0, 0, 1, 1}, 0, {{"pads", Ints{0, 1, 1, 0}}}),
               plain("Conv", {{"pads", Ints{2, 1, 2, 1}}}));
  expect_equal(
      padded("AveragePool", one, 0, {}),
      plain("AveragePool", {{"pads", Ints{1, 1, 1, 1}}, {"count_include_pad", std::int64_t{1}}}));
  expect_equal(padded("MaxPool", one, kLowestFloat, {}),
               plain("MaxPool", {{"pads", Ints{1, 1, 1, 1}}}));
  // What one node cannot say stays a Pad: another value, an uneven one, means without their own
  // padding.
  const Ints before{0, 0, 1, 1, 0, 0, 0, 0};
  EXPECT_EQ(types_of(padded("Conv", one, 1, {})).size(), 2U);
  EXPECT_EQ(types_of(padded("Conv", before, 0, {})).size(), 2U);
  EXPECT_EQ(types_of(padded("MaxPool", one, 0, {})).size(), 2U);
  EXPECT_EQ(types_of(padded("MaxPool", one, kLowestFloat, {{"ceil_mode", std::int64_t{1}}})).size(),
            2U);
  EXPECT_EQ(types_of(padded("AveragePool", one, 0, {{"pads", Ints{1, 1, 1, 1}}})),
            (std::vector<std::string>{"Pad", "AvgPool2d", "MulConstant"}));
}

// 10 * 0.7f is 7 in float32 and less in double.
TEST(Translate, ResizesToSizesInFloat32) {
  ModelMaker m(images(3));
  const std::string x =
      m.node("Resize", {"x", "", m.reals("scales", {4}, {1, 1, 0.7F, 0.5F})}, {{"mode", "linear"}});
  EXPECT_EQ(translate(m.ending_in(x), {10, 10, 3}).graph.output_sample, (Shape{7, 5, 3}));
}

// The numbers are those that ONNX Runtime gives for 0, 1, 2, 3, 4.
TEST(Translate, ResizesAsOnnxRuntimeDoes) {
  const auto resized = [](std::int64_t opset, float scale,
                          const std::map<std::string, OnnxAttributeValue>& attributes) {
    ModelMaker m({{std::nullopt}, {1}, {5}});
    m.model().opset = opset;
    std::vector<std::string> inputs{"x", "", m.reals("scales", {3}, {1, 1, scale})};
    if (opset < 11) inputs.erase(inputs.begin() + 1);
    const std::string image = m.node("Resize", inputs, attributes);
    const Imported imported = translate(m.ending_in(m.node("Relu", {image})), {1, 5});
    return testing::values(output_of(imported, Tensor::from<float>({0, 1, 2, 3, 4}, {1, 1, 5})));
  };
  // Before there was a nearest_mode, shrinking took the next pixel.
  EXPECT_THAT(resized(10, 0.6F, {{"mode", "nearest"}}), ElementsAre(0, 2, 4));
  EXPECT_THAT(resized(10, 1.5F, {{"mode", "nearest"}}), ElementsAre(0, 0, 1, 2, 2, 3, 4));
  // 1.5 / 0.6 is a little less than 2.5, but not in float32.
  const std::string transform = "coordinate_transformation_mode";
  EXPECT_THAT(resized(13, 0.6F,
                      {{"mode", "nearest"}, {transform, "half_pixel"}, {"nearest_mode", "floor"}}),
              ElementsAre(0, 2, 3));
  // The corners are those of 7 pixels, not of 7.5.
  const auto near = [](double value) { return ::testing::DoubleNear(value, 1e-6); };
  EXPECT_THAT(resized(13, 1.5F, {{"mode", "linear"}, {transform, "align_corners"}}),
              ElementsAre(0, near(2 / 3.0), near(4 / 3.0), 2, near(8 / 3.0), near(10 / 3.0), 4));
  // In float32 there.
  const auto close = [](double value) { return ::testing::DoubleNear(value, 1e-5); };
  EXPECT_THAT(resized(13, 1.5F, {{"mode", "cubic"}}),  // the Relu takes -0.0868
              ElementsAre(0, close(0.40625), close(1.2129643), close(1.7870376), close(2.5),
                          close(3.2303243), close(3.8738432)));
  EXPECT_THAT(resized(13, 0.6F, {{"mode", "cubic"}, {"cubic_coeff_a", -0.5F}}),
              ElementsAre(close(0.2592593), close(2), close(3.7407407)));
  // Images that keep their size are copied.
  EXPECT_THAT(resized(13, 1.1F, {{"mode", "linear"}, {transform, "asymmetric"}}),
              ElementsAre(0, 1, 2, 3, 4));
}

TEST(Translate, RefusesWeightsThatAreNotFinite) {
  ModelMaker m(images(1));
  const std::string w = m.reals("w", {1, 1, 1, 2}, {0, NAN});
  EXPECT_THAT(message_of<InputError>([&] {
                translate(m.ending_in(m.node("Conv", {"x", w})), {6, 5, 1});
              }),
              HasSubstr("tensor 'w': element 1 is NaN: expected finite weights"));
}

}  // namespace
}  // namespace steelyard::imports
