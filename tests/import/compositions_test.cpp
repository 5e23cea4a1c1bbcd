// Operations that are composed of several modules, against their definitions. ONNX's own cases
// (onnx_testdata_test.cpp) have most of the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/framework/ops/elementwise/activations.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/elementwise/unary.h"
#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/framework/ops/moves/expand.h"
#include "steelyard/framework/ops/moves/slice.h"
#include "steelyard/framework/ops/products/conv_transpose2d.h"
#include "steelyard/framework/ops/products/matmul.h"
#include "steelyard/framework/ops/reductions/layer_norm.h"
#include "steelyard/framework/ops/reductions/softmax.h"
#include "tests/import/onnx_support.h"

namespace steelyard::imports {
namespace {

using testing::all_close;
using ::testing::Each;
using ::testing::ElementsAre;

using Ints = std::vector<std::int64_t>;
using Attributes = std::map<std::string, OnnxAttributeValue>;

// Sequences [N, 6, 5].
ModelMaker sequences() { return ModelMaker({{std::nullopt}, {6}, {5}}); }
Variable sequence() { return Variable(testing::random_tensor({2, 6, 5}, 3, DType::kF32)); }

Variable weight(ModelMaker& m, const std::string& name) {
  const Constant& c = m.model().initializers.at(name);
  return Variable(Tensor::from(c.reals, c.shape));
}

void expect_gives(ModelMaker& m, const std::string& output, const Variable& x,
                  const Variable& expected) {
  const Imported imported = translate(m.ending_in(output), Shape{6, 5});
  EXPECT_TRUE(all_close(output_of(imported, x.value()), expected.value(), 1e-5, 1e-5)) << output;
}

// Less the mean of the last dimension, by the root of its mean square.
Variable normalized(const Variable& x, double eps) {
  const Variable centred = x - mean(x, {-1}, ReducedAxes::kKeep);
  return centred / sqrt(mean(centred * centred, {-1}, ReducedAxes::kKeep) + eps);
}

TEST(Compositions, GroupNorms) {
  for (const bool of_groups : {true, false}) {
    ModelMaker m = sequences();
    const std::int64_t size = of_groups ? 3 : 6;
    const std::string y =
        m.node("GroupNormalization", {"x", m.weight("s", {size}), m.weight("b", {size})},
               {{"num_groups", std::int64_t{3}}, {"epsilon", 0.25F}});
    const Variable x = sequence();
    const Variable rows = normalized(reshape(x, {2, 3, 10}), 0.25);
    const Shape of_channels{1, 6, 1};
    const auto along = [&](const char* name) {
      const Variable v = weight(m, name);
      if (!of_groups) return reshape(v, of_channels);
      return reshape(expand(reshape(v, {3, 1}), {3, 2}), of_channels);
    };
    expect_gives(m, y, x, reshape(rows, {2, 6, 5}) * along("s") + along("b"));
  }
}

TEST(Compositions, NormsOfSeveralDimensionsAndOfSquares) {
  const Variable x = sequence();
  ModelMaker layer = sequences();
  const std::string y =
      layer.node("LayerNormalization", {"x", layer.weight("s", {6, 5}), layer.weight("b", {6, 5})},
                 {{"axis", std::int64_t{1}}, {"epsilon", 0.25F}});
  const Variable rows = reshape(normalized(reshape(x, {2, 30}), 0.25), {2, 6, 5});
  expect_gives(layer, y, x, rows * weight(layer, "s") + weight(layer, "b"));
  for (const char* op : {"RMSNormalization", "SimplifiedLayerNormalization"}) {
    ModelMaker m = sequences();
    const std::string z = m.node(op, {"x", m.weight("s", {5})}, {{"epsilon", 0.25F}});
    const Variable root = sqrt(mean(x * x, {-1}, ReducedAxes::kKeep) + 0.25);
    expect_gives(m, z, x, x / root * weight(m, "s"));
  }
}

// x - mean by the root of its mean square, with an axis that counts from the front.
TEST(Compositions, LayerNormsThatAreSpeltOut) {
  for (const bool affine : {false, true}) {
    ModelMaker m = sequences();
    const Attributes last{{"axes", Ints{2}}};
    const std::string centred = m.node("Sub", {"x", m.node("ReduceMean", {"x"}, last)});
    const std::string square = m.node("Pow", {centred, m.number(2)});
    const std::string shifted =
        m.node("Add", {m.node("ReduceMean", {square}, last), m.number(0.25F)});
    std::string y = m.node("Div", {centred, m.node("Sqrt", {shifted})});
    const Variable x = sequence();
    Variable expected = normalized(x, 0.25);
    if (affine) {
      y = m.node("Add", {m.node("Mul", {y, m.weight("s", {5})}), m.weight("b", {5})});
      expected = expected * weight(m, "s") + weight(m, "b");
    }
    EXPECT_THAT(types_of(translate(m.ending_in(y), Shape{6, 5})), ElementsAre("LayerNorm"));
    expect_gives(m, y, x, expected);
  }
}

TEST(Compositions, SkipNormsGiveTheirSumToo) {
  for (const bool squares : {false, true}) {
    ModelMaker m = sequences();
    const std::string relu_of_x = m.node("Relu", {"x"});
    std::vector<std::string> inputs{"x", relu_of_x, m.weight("s", {5})};
    if (!squares) inputs.push_back(m.weight("b", {5}));
    inputs.push_back(m.weight("c", {5}));
    OnnxNode skip{.name = "skip",
                  .op = squares ? "SkipSimplifiedLayerNormalization" : "SkipLayerNormalization",
                  .domain = "com.microsoft",
                  .inputs = inputs,
                  .outputs = {"norm", "", "", "sum"},
                  .attributes = {{"epsilon", 0.25F}}};
    m.model().nodes.push_back(skip);
    const std::string y = m.node("Mul", {"norm", "sum"});
    const Variable x = sequence();
    const Variable sum = x + relu(x) + weight(m, "c");
    const Variable root = sqrt(mean(sum * sum, {-1}, ReducedAxes::kKeep) + 0.25);
    const Variable norm = squares ? sum / root * weight(m, "s")
                                  : normalized(sum, 0.25) * weight(m, "s") + weight(m, "b");
    expect_gives(m, y, x, norm * sum);
  }
}

TEST(Compositions, GatesOfOnnxRuntime) {
  const Variable x = sequence();
  const auto gives = [&](OnnxNode node, const Variable& expected) {
    ModelMaker m = sequences();
    node.domain = "com.microsoft";
    node.outputs = {"y"};
    if (node.inputs.size() == 2) m.weight("b", {5});
    m.model().nodes.push_back(node);
    expect_gives(m, "y", x, expected);
  };
  gives({.name = "gate", .op = "Gelu", .inputs = {"x"}, .outputs = {}}, gelu(x));
  gives({.name = "gate", .op = "FastGelu", .inputs = {"x"}, .outputs = {}}, tanh_gelu(x));
  ModelMaker m = sequences();
  m.weight("b", {5});
  gives({.name = "gate", .op = "FastGelu", .inputs = {"x", "b"}, .outputs = {}},
        tanh_gelu(x + weight(m, "b")));
  gives({.name = "gate",
         .op = "QuickGelu",
         .inputs = {"x"},
         .outputs = {},
         .attributes = {{"alpha", 1.5F}}},
        x * sigmoid(x * 1.5));
}

TEST(Compositions, SoftmaxOfAnyDimension) {
  const Variable x = sequence();
  for (const bool logarithm : {false, true}) {
    ModelMaker m = sequences();
    const std::string y =
        m.node(logarithm ? "LogSoftmax" : "Softmax", {"x"}, {{"axis", std::int64_t{1}}});
    const Variable shares = transpose(softmax(transpose(x, 1, 2)), 1, 2);
    expect_gives(m, y, x, logarithm ? log(shares) : shares);
  }
  ModelMaker old = sequences();  // over all dimensions from the axis on
  old.model().opset = 11;
  expect_gives(old, old.node("Softmax", {"x"}), x,
               reshape(softmax(reshape(x, {2, 30})), {2, 6, 5}));
}

TEST(Compositions, BordersOfSomeDimensions) {
  const auto padded = [](const char* mode) {
    ModelMaker m({{std::nullopt}, {2}, {3}});
    m.model().opset = 19;
    const std::string y = m.node("Pad", {"x", m.integers({2, 1}), "", m.integers({-1})},
                                 {{"mode", std::string(mode)}});
    const Imported imported = translate(m.ending_in(y), Shape{2, 3});
    return testing::values(output_of(imported, Tensor::from<float>({1, 2, 3, 4, 5, 6}, {1, 2, 3})));
  };
  EXPECT_THAT(padded("constant"), ElementsAre(0, 0, 1, 2, 3, 0, 0, 0, 4, 5, 6, 0));
  EXPECT_THAT(padded("edge"), ElementsAre(1, 1, 1, 2, 3, 3, 4, 4, 4, 5, 6, 6));
  EXPECT_THAT(padded("reflect"), ElementsAre(3, 2, 1, 2, 3, 2, 6, 5, 4, 5, 6, 5));
  EXPECT_THAT(padded("wrap"), ElementsAre(2, 3, 1, 2, 3, 1, 5, 6, 4, 5, 6, 4));
}

TEST(Compositions, ProductsOfAMatrixAndOfOtherLeadingDimensions) {
  const Variable x = sequence();
  ModelMaker m = sequences();
  const std::string y = m.node("MatMul", {m.weight("w", {4, 6}), "x"});
  const Variable w = weight(m, "w");
  expect_gives(m, y, x, transpose(matmul(transpose(x, 1, 2), transpose(w, 0, 1)), 1, 2));
  ModelMaker heads = sequences();
  const std::string four = heads.node("Unsqueeze", {"x", heads.integers({1})});
  const std::string two = heads.node("Concat", {four, four}, {{"axis", std::int64_t{1}}});
  const std::string turned = heads.node("Transpose", {four}, {{"perm", Ints{0, 1, 3, 2}}});
  const std::string product = heads.node("MatMul", {two, turned});  // [N, 2, 6, 6]
  const Variable one = reshape(matmul(x, transpose(x, 1, 2)), {2, 1, 6, 6});
  const Imported imported = translate(heads.ending_in(product), Shape{6, 5});
  EXPECT_TRUE(all_close(output_of(imported, x.value()), concat({one, one}, 1).value(), 1e-5, 1e-5));
}

// The uneven ends of a transposed convolution are those of one without padding.
TEST(Compositions, TransposedConvolutionsOfSequences) {
  const Variable x = sequence();
  for (const Ints& pads : {Ints{0, 0}, Ints{1, 1}, Ints{2, 1}, Ints{1, 2}, Ints{2, 0}}) {
    ModelMaker m = sequences();
    const std::string y = m.node("ConvTranspose", {"x", m.weight("w", {6, 4, 3})},
                                 {{"strides", Ints{2}}, {"pads", pads}});
    const Variable kernel = reshape(weight(m, "w"), {6, 4, 1, 3});
    const Variable rows = reshape(transpose(x, 1, 2), {2, 1, 5, 6});
    Variable full = conv_transpose2d(rows, kernel, {}, {{.stride = {1, 2}}, {0, 0}});
    const std::int64_t left = full.dim(2) - pads[0] - pads[1];
    full = slice(full, {{0, 2, 1}, {0, 1, 1}, {pads[0], left, 1}, {0, 4, 1}});
    expect_gives(m, y, x, transpose(reshape(full, {2, left, 4}), 1, 2));
  }
}

// A last window that ceil_mode adds counts what is inside, and padding that the file asks for.
TEST(Compositions, AveragesOverTheEdge) {
  const auto averages = [](std::int64_t padding_counts, const Ints& pads,
                           const std::vector<float>& row) {
    const auto size = static_cast<std::int64_t>(row.size());
    ModelMaker m({{std::nullopt}, {1}, {size}});
    const std::string y = m.node("AveragePool", {"x"},
                                 {{"kernel_shape", Ints{3}},
                                  {"strides", Ints{2}},
                                  {"pads", pads},
                                  {"ceil_mode", std::int64_t{1}},
                                  {"count_include_pad", padding_counts}});
    const Imported imported = translate(m.ending_in(y), Shape{1, size});
    return testing::values(output_of(imported, Tensor::from<float>(row, {1, 1, size})));
  };
  EXPECT_THAT(averages(0, {0, 1}, {3, 6, 9, 12}), ElementsAre(6, 10.5));
  EXPECT_THAT(averages(1, {0, 1}, {3, 6, 9, 12}), ElementsAre(6, 7));
  // The added end is as large as the padding in front, but does not count.
  EXPECT_THAT(averages(0, {1, 0}, {3, 6, 9, 12, 15}), ElementsAre(4.5, 9, 13.5));
  EXPECT_THAT(averages(1, {1, 0}, {3, 6, 9, 12, 15}), ElementsAre(3, 9, 13.5));
}

TEST(Compositions, PixelsBecomeChannelsWithoutArithmetic) {
  ModelMaker m({{std::nullopt}, {8}, {2}, {3}});
  const std::string y = m.node("DepthToSpace", {"x"}, {{"blocksize", std::int64_t{2}}});
  const std::string back = m.node("SpaceToDepth", {y}, {{"blocksize", std::int64_t{2}}});
  const Imported imported = translate(m.ending_in(back), {2, 3, 8});
  EXPECT_THAT(types_of(imported), Each(::testing::AnyOf("Reshape", "Permute")));
  const Tensor x = testing::random_tensor({2, 2, 3, 8}, 3, DType::kF32);
  EXPECT_EQ(testing::values(output_of(imported, x)), testing::values(x));
}

TEST(Compositions, FloatsOfOtherWidths) {
  ModelMaker m = sequences();
  m.model().inputs[0].type = "float16";
  const std::string wide = m.node("Cast", {"x"}, {{"to", std::int64_t{1}}});
  const std::string narrow = m.node("Cast", {m.node("Relu", {wide})}, {{"to", std::int64_t{10}}});
  OnnxModel model = m.ending_in(narrow);
  model.outputs[0].type = "float16";
  const Imported imported = translate(model, Shape{6, 5});
  EXPECT_THAT(types_of(imported), ElementsAre("ReLU"));
  EXPECT_THAT(imported.notes,
              ElementsAre("the input 'x' is float16 in test.onnx, and float32 here and in exports",
                          "the output 'Cast_2:0' is float16 in test.onnx, and float32 here and in "
                          "exports"));
}

}  // namespace
}  // namespace steelyard::imports
