#include "steelyard/import/batch_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "steelyard/import/translate.h"
#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using testing::all_close;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::Pointwise;
using testing::random_tensor;

using Ints = std::vector<std::int64_t>;

// Three parts of one tensor, which a Transpose brings to the front: [3, N, 4, 2].
TEST(BatchOrder, PartsAreTakenInFrontOfATransposeOfTheBatch) {
  for (const std::string way : {"Slice", "Split", "Gather", "last by -1"}) {
    ModelMaker m({{std::nullopt}, {24}});
    const std::string turned =
        m.node("Transpose", {m.node("Reshape", {"x", m.integers({0, 4, 3, 2})})},
               {{"perm", Ints{2, 0, 1, 3}}});
    if (way == "Split") {
      m.model().nodes.push_back({.name = "split",
                                 .op = "Split",
                                 .inputs = {turned},
                                 .outputs = {"part0", "part1", "part2"},
                                 .attributes = {{"axis", std::int64_t{0}}}});
    }
    const auto part = [&](std::int64_t i) {
      const bool behind = way == "last by -1" && i == 2;
      if (way == "Gather") {
        m.model().initializers["at" + std::to_string(i)] = {.shape = {}, .integers = {{i}}};
        return m.node("Gather", {turned, "at" + std::to_string(i)}, {{"axis", std::int64_t{0}}});
      }
      const std::string taken =
          way == "Split"
              ? "part" + std::to_string(i)
              : m.node("Slice", {turned, m.integers({behind ? -1 : i}),
                                 m.integers({behind ? INT32_MAX : i + 1}), m.integers({0})});
      return m.node("Squeeze", {taken, m.integers({0})});
    };
    const std::string a = part(0), b = part(1), c = part(2);
    const Imported imported =
        translate(m.ending_in(m.node("Sub", {a, m.node("Mul", {b, c})})), {24});
    const Tensor x = random_tensor({2, 24}, 1, DType::kF32);
    const Tensor y = output_of(imported, x);
    ASSERT_EQ(y.shape(), (Shape{2, 4, 2})) << way;
    for (std::int64_t i = 0; i < y.size(); ++i) {
      const float* from = x.data<float>() + i / 2 * 6 + i % 2;
      EXPECT_FLOAT_EQ(y.data<float>()[i], from[0] - from[2] * from[4]) << way;
    }
  }
}

// The file describes a batch of one sample; what it says of the batch's size holds for any.
TEST(BatchOrder, AFixedBatchKeepsSamplesApart) {
  ModelMaker mixed({{1}, {6}});
  const std::string halves = mixed.node("Reshape", {"x", mixed.integers({2, -1})});
  const std::string doubled = mixed.node("Mul", {halves, mixed.weight("w", {2, 1})});
  const OnnxModel model =
      mixed.ending_in(mixed.node("Reshape", {doubled, mixed.integers({-1, 6})}));
  EXPECT_THAT(message_of<InputError>([&] { translate(model, {6}); }),
              HasSubstr("would mix the samples of a batch"));
  // Steps before samples are rows of steps and samples, and come back.
  ModelMaker m({{1}, {4}, {3}});
  const std::string steps = m.node("Transpose", {"x"}, {{"perm", Ints{1, 0, 2}}});
  const std::string rows = m.node("Reshape", {steps, m.integers({-1, 3})});
  const std::string product = m.node("MatMul", {rows, m.weight("w", {3, 5})});
  const std::string apart = m.node("Reshape", {product, m.integers({4, -1, 5})});
  const Imported imported =
      translate(m.ending_in(m.node("Transpose", {apart}, {{"perm", Ints{1, 0, 2}}})), {4, 3});
  const Tensor x = random_tensor({2, 4, 3}, 3, DType::kF32);
  const Tensor both = output_of(imported, x);
  ASSERT_EQ(both.shape(), (Shape{2, 4, 5}));
  for (std::int64_t i = 0; i < 2; ++i) {
    const auto sample = x.span<float>().subspan(static_cast<std::size_t>(i) * 12, 12);
    const Tensor one = output_of(
        imported, Tensor::from(std::vector<float>(sample.begin(), sample.end()), {1, 4, 3}));
    const auto of_both = both.span<float>().subspan(static_cast<std::size_t>(i) * 20, 20);
    // Products of more rows may add in another order.
    EXPECT_THAT(of_both, Pointwise(FloatNear(1e-6F), one.span<float>()));
  }
}

// The file takes its batch away there, and counts later dimensions without it.
TEST(BatchOrder, ASqueezeOfABatchOfOneNamesItsAxes) {
  const auto squeezed = [](std::optional<std::int64_t> batch, bool names_axes) {
    ModelMaker m({{batch}, {2}, {1}, {6}});
    std::vector<std::string> inputs{"x"};
    if (names_axes) inputs.push_back(m.integers({2}));
    return m.ending_in(m.node("Squeeze", inputs));
  };
  EXPECT_THAT(message_of<InputError>([&] {
                translate(squeezed(1, false), {1, 6, 2});
              }),
              HasSubstr("Squeeze_0 (Squeeze): expected axes: without them it takes away the batch, "
                        "which is 1 in the file, too"));
  for (const OnnxModel& model :
       {squeezed(1, true), squeezed(4, false), squeezed(std::nullopt, false)}) {
    EXPECT_EQ(translate(model, {1, 6, 2}).graph.output_sample, (Shape{2, 6}));
  }
}

// The nodes in front of the Transpose have names of their own.
TEST(BatchOrder, NamesOfTheFileStayTheirs) {
  ModelMaker m({{std::nullopt}, {4}});
  const std::string turned = m.node("Transpose", {m.node("Reshape", {"x", m.integers({-1, 2, 2})})},
                                    {{"perm", Ints{1, 0, 2}}});
  const auto part = [&](std::int64_t i) {
    return m.node("Gather", {turned, m.number_of(i)}, {{"axis", std::int64_t{0}}});
  };
  const std::string first = part(0), second = part(1);
  for (const std::string end : {"#slice", "#squeeze"}) {
    auto& nodes = m.model().nodes;
    nodes.insert(nodes.begin(),
                 {.name = "", .op = "Relu", .inputs = {"x"}, .outputs = {first + end}});
  }
  const std::string own = m.node("Add", {first + "#slice", first + "#squeeze"});
  const std::string sum = m.node("Add", {first, second});
  const Imported imported =
      translate(m.ending_in(m.node("Concat", {own, sum}, {{"axis", std::int64_t{1}}})), {4});
  const Tensor y = output_of(imported, Tensor::from<float>({1, -2, 3, 4}, {1, 4}));
  EXPECT_EQ(testing::values(y), (std::vector<double>{2, 0, 6, 8, 4, 2}));
}

TEST(BatchOrder, AReshapeThatDropsAFixedBatchSaysSo) {
  ModelMaker m({{1}, {4}, {4}});
  const OnnxModel model = m.ending_in(m.node("Reshape", {"x", m.integers({4, 4})}));
  EXPECT_THAT(message_of<InputError>([&] {
                translate(model, {4, 4});
              }),
              HasSubstr("cannot reshape [N, 4, 4] to [4, 4]: expected the batch to stay, which the "
                        "file fixes"));
}

// A product over the batch, of a file that fixes it at one sample.
TEST(BatchOrder, AProductDoesNotSumOverSamples) {
  ModelMaker m({{1}, {6}});
  const std::string turned = m.node("Transpose", {"x"}, {{"perm", Ints{1, 0}}});
  const OnnxModel model = m.ending_in(m.node("MatMul", {"x", m.node("MatMul", {turned, "x"})}));
  EXPECT_THAT(message_of<InputError>([&] { translate(model, {6}); }),
              HasSubstr("expected a size that does not depend on the batch's"));
}

}  // namespace
}  // namespace steelyard::imports
