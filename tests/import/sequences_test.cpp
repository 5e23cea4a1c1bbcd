// Windows and norms over sequences, and lengths of rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/elementwise/unary.h"
#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

using Ints = std::vector<std::int64_t>;

// Sequences [N, C, L], here of one sample: 1, 2, ..., 10 in two channels.
TEST(Translate, PoolsAndResizesSequences) {
  const auto sequence = [](const std::string& op, std::vector<std::string> more,
                           std::map<std::string, OnnxAttributeValue> attributes) {
    ModelMaker m({{std::nullopt}, {2}, {5}});
    std::vector<std::string> inputs{"x"};
    for (const std::string& name : more) {
      inputs.push_back(name == "sizes" ? m.integers({1, 2, 10}) : "");
    }
    return translate(m.ending_in(m.node(op, inputs, std::move(attributes))), Shape{2, 5});
  };
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {1, 2, 5});
  const auto values = [&](const Imported& imported) {
    return testing::values(output_of(imported, x));
  };
  const Ints three{3}, two{2}, uneven{1, 0}, even{1, 1};
  EXPECT_THAT(values(sequence("MaxPool", {}, {{"kernel_shape", three}, {"strides", two}})),
              ElementsAre(3, 5, 8, 10));
  EXPECT_THAT(
      values(sequence("MaxPool", {}, {{"kernel_shape", two}, {"strides", two}, {"pads", uneven}})),
      ElementsAre(1, 3, 5, 6, 8, 10));
  EXPECT_THAT(
      values(sequence("MaxPool", {},
                      {{"kernel_shape", two}, {"strides", two}, {"ceil_mode", std::int64_t{1}}})),
      ElementsAre(2, 4, 5, 7, 9, 10));
  const std::map<std::string, OnnxAttributeValue> mean{
      {"kernel_shape", three}, {"strides", two}, {"pads", even}};
  EXPECT_THAT(values(sequence("AveragePool", {}, mean)), ElementsAre(1.5, 3, 4.5, 6.5, 8, 9.5));
  auto counted = mean;
  counted["count_include_pad"] = std::int64_t{1};
  EXPECT_THAT(values(sequence("AveragePool", {}, counted)),
              ElementsAre(1, 3, 3, DoubleNear(13.0 / 3, 1e-6), 8, DoubleNear(19.0 / 3, 1e-6)));
  EXPECT_THAT(values(sequence("Resize", {"", "", "sizes"}, {{"mode", std::string("nearest")}})),
              ElementsAre(1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10));
  EXPECT_THAT(values(sequence("Resize", {"", "", "sizes"}, {{"mode", std::string("linear")}})),
              ElementsAre(1, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4.25, 4.75, 5, 6, 6.25, 6.75, 7.25,
                          7.75, 8.25, 8.75, 9.25, 9.75, 10));
}

TEST(Translate, TheLengthOfARowOfZerosHasTheGradient0) {
  ModelMaker m({{std::nullopt}, {3}});
  const Imported imported =
      translate(m.ending_in(m.node("ReduceL2", {"x"}, {{"axes", Ints{1}}})), Shape{3});
  const Variable x(Tensor::from<float>({0, 0, 0, 3, 0, 4}, {2, 3}), /*requires_grad=*/true);
  ForwardContext context;
  const Variable y = module_of(imported)->forward(x, context);
  EXPECT_THAT(testing::values(y.value()), ElementsAre(0, 5));
  y.backward(Tensor::full({2, 1}, 1.0));
  EXPECT_THAT(testing::values(x.grad()),
              ElementsAre(0, 0, 0, DoubleNear(0.6, 1e-6), 0, DoubleNear(0.8, 1e-6)));
}

// Moments of each channel of each sample, whatever the order of dimensions.
TEST(Translate, InstanceNormsOfImagesAndSequences) {
  for (const Shape& pixels : {Shape{4, 5}, Shape{20}}) {
    std::vector<OnnxDim> dims{{std::nullopt}, {3}};
    for (const std::int64_t size : pixels) dims.push_back({size});
    ModelMaker m(dims);
    const std::string y = m.node(
        "InstanceNormalization",
        {"x", m.reals("in.weight", {3}, {1, 2, -0.5F}), m.reals("in.bias", {3}, {0, 0.5F, 1})},
        {{"epsilon", 0.25F}});
    Shape sample = pixels;
    sample.insert(pixels.size() == 2 ? sample.end() : sample.begin(), 3);
    const Imported imported = translate(m.ending_in(m.node("Relu", {y})), sample);
    EXPECT_EQ(names_of(imported)[pixels.size() == 2 ? 0 : 1], "in");
    Shape batch = sample;
    batch.insert(batch.begin(), 2);
    const Variable x(testing::random_tensor(batch, 3, DType::kF32));
    const bool image = pixels.size() == 2;
    const Variable last = image ? x : transpose(x, 1, 2);
    const std::vector<std::int64_t> axes =
        image ? std::vector<std::int64_t>{1, 2} : std::vector<std::int64_t>{1};
    const Variable centred = last - mean(last, axes, ReducedAxes::kKeep);
    const Variable deviation = sqrt(mean(centred * centred, axes, ReducedAxes::kKeep) + 0.25);
    const Variable scale(Tensor::from<float>({1, 2, -0.5F}, {3})),
        shift(Tensor::from<float>({0, 0.5F, 1}, {3}));
    const Variable expected = relu(centred / deviation * scale + shift);
    EXPECT_TRUE(testing::all_close(output_of(imported, x.value()),
                                   (image ? expected : transpose(expected, 1, 2)).value(), 1e-5,
                                   1e-6));
  }
}

// Positions that a vision transformer has learned, for images of another size.
TEST(Translate, ResizesConstants) {
  ModelMaker m({{std::nullopt}, {1}, {2}, {4}});
  const std::string places = m.reals("places", {1, 1, 1, 2}, {0, 1});
  const std::string wide =
      m.node("Resize", {places, "", "", m.integers({1, 1, 2, 4})}, {{"mode", "linear"}});
  const Imported imported = translate(m.ending_in(m.node("Add", {"x", wide})), {2, 4, 1});
  EXPECT_THAT(types_of(imported), ElementsAre("AddConstant"));
  EXPECT_THAT(testing::values(output_of(imported, Tensor::zeros({1, 2, 4, 1}))),
              ElementsAre(0, 0.25, 0.75, 1, 0, 0.25, 0.75, 1));
}

}  // namespace
}  // namespace steelyard::imports
