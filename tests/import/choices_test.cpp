// Where, and the comparisons that it reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using testing::all_close;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

// What the model computes for x [1, 2, 3].
std::vector<float> values(const Imported& imported, const std::vector<float>& x) {
  const Tensor y = output_of(imported, Tensor::from(x, {1, 2, 3}));
  return {y.span<float>().begin(), y.span<float>().end()};
}

std::string mask(ModelMaker& m, const std::vector<std::int64_t>& truths) {
  return m.node("Cast", {m.integers(truths)}, {{"to", std::int64_t{9}}});
}

const std::vector<OnnxDim> kRows{{std::nullopt}, {2}, {3}};

TEST(Choices, AConstantConditionMasks) {
  ModelMaker m(kRows);
  const std::string y = m.node("Where", {mask(m, {1, 0, 1}), "x", m.number(-INFINITY)});
  const Imported imported = translate(m.ending_in(m.node("Softmax", {y})), {2, 3});
  EXPECT_THAT(types_of(imported), ElementsAre("WhereGreater"));
  EXPECT_EQ(imported.graph.head, "Softmax");
  EXPECT_THAT(values(imported, {1, 5, 1, 2, 9, 2}), ElementsAre(0.5F, 0, 0.5F, 0.5F, 0, 0.5F));
  // It comes back from a checkpoint, and learns nothing.
  EXPECT_EQ(text_of(graph_from(text_of(imported.graph), "file")), text_of(imported.graph));
  EXPECT_TRUE(module_of(imported)->named_parameters().empty());
}

// As torch's attention takes what a softmax of masked scores gives.
TEST(Choices, WhatIsNoNumberIsToldFromNumbers) {
  ModelMaker m(kRows);
  const std::string y = m.node("Where", {m.node("IsNaN", {"x"}), m.number(7), "x"});
  const Imported imported = translate(m.ending_in(y), {2, 3});
  EXPECT_THAT(values(imported, {1, NAN, INFINITY, NAN, -2, 0}),
              ElementsAre(1, 7, INFINITY, 7, -2, 0));
}

// A row of a Softmax that is masked as a whole is no number in ONNX.
TEST(Choices, RowsThatAreMaskedAsAWholeAreToldBehindTheirSoftmax) {
  for (const bool moved : {false, true}) {
    ModelMaker m(kRows);
    const std::string scores =
        m.node("Where", {m.node("Greater", {"x", m.number(0)}), "x", m.number(-INFINITY)});
    const std::string chances = m.node("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
    std::string none = m.node("IsNaN", {chances});
    if (moved) {
      none = m.node("Cast", {none}, {{"to", std::int64_t{1}}});
      none = m.node("Greater", {none, m.number(0.5F)});
    }
    const Imported imported =
        translate(m.ending_in(m.node("Where", {none, m.number(0), chances})), {2, 3});
    EXPECT_THAT(values(imported, {-1, -2, -3, 5, -1, 5}), ElementsAre(0, 0, 0, 0.5F, 0, 0.5F));
    EXPECT_THAT(values(imported, {-1, 2, -3, -5, -1, -9}), ElementsAre(0, 1, 0, 0, 0, 0));
  }
}

TEST(Choices, EveryComparison) {
  using Floats = std::vector<float>;
  struct Case {
    std::string op;
    Floats expected;  // 10 where it holds of 1, 2, 3 and 2, else 20
  };
  const std::vector<Case> cases{{"Greater", {20, 20, 10}},
                                {"GreaterOrEqual", {20, 10, 10}},
                                {"Less", {10, 20, 20}},
                                {"LessOrEqual", {10, 10, 20}},
                                {"Equal", {20, 10, 20}}};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.op);
    const auto chosen = [&](bool turned) {
      ModelMaker m({{std::nullopt}, {1}, {3}});
      std::string holds = m.node(one.op, {"x", m.number(2)});
      if (turned) holds = m.node("Not", {holds});
      std::vector<std::string> operands{holds, m.number(10), m.number(20)};
      if (turned) std::swap(operands[1], operands[2]);
      const Imported imported = translate(m.ending_in(m.node("Where", operands)), {1, 3});
      const Tensor y = output_of(imported, Tensor::from<float>({1, 2, 3}, {1, 1, 3}));
      return Floats(y.span<float>().begin(), y.span<float>().end());
    };
    EXPECT_EQ(chosen(false), one.expected);
    EXPECT_EQ(chosen(true), one.expected);
    ModelMaker m({{std::nullopt}, {1}, {3}});
    const std::string holds = m.node(one.op, {"x", m.number(2)});
    const Imported imported =
        translate(m.ending_in(m.node("Cast", {holds}, {{"to", std::int64_t{1}}})), {1, 3});
    const Tensor y = output_of(imported, Tensor::from<float>({1, 2, 3}, {1, 1, 3}));
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(y.data<float>()[i], one.expected[i] == 10 ? 1 : 0);
    }
  }
}

// Values and constants may have their dimensions in any order.
TEST(Choices, FollowTheLayout) {
  ModelMaker m(images(2));
  const std::string y = m.node("Conv", {"x", m.weight("c", {2, 2, 1, 1})});
  const std::string border = m.reals("border", {2, 1, 1}, {0.25F, -0.25F});
  const std::string z = m.node("Where", {m.node("Greater", {y, border}), y, "x"});
  const Imported imported = translate(m.ending_in(z), {3, 4, 2});
  EXPECT_THAT(types_of(imported), ElementsAre("Conv2d", "WhereGreater"));
  const Tensor x = testing::random_tensor({2, 3, 4, 2}, 5, DType::kF32);
  const Tensor result = output_of(imported, x);
  const auto* weight = imported.weights[0].tensor.data<float>();
  for (std::int64_t i = 0; i < x.size(); i += 2) {
    const float *in = x.data<float>() + i, *out = result.data<float>() + i;
    for (const int c : {0, 1}) {
      const float of_conv = weight[2 * c] * in[0] + weight[2 * c + 1] * in[1];
      EXPECT_NEAR(out[c], of_conv > (c == 0 ? 0.25F : -0.25F) ? of_conv : in[c], 1e-6);
    }
  }
}

// A comparison of images that is moved, of as many channels as rows and columns: another order of
// dimensions would not show in the shapes.
TEST(Choices, OfImagesThatAreMoved) {
  constexpr std::int64_t kSize = 4;
  const std::vector<std::int64_t> positions{3, 1, 0, 2};
  for (const std::int64_t axis : {1, 2, 3}) {
    for (const bool opposite : {false, true}) {
      ModelMaker m({{std::nullopt}, {kSize}, {kSize}, {kSize}});
      const std::string y = m.node("Conv", {"x", m.weight("c", {kSize, kSize, 1, 1})});
      std::string holds = m.node("Greater", {y, m.number(0)});
      if (opposite) holds = m.node("Not", {m.node("Not", {holds})});
      holds = m.node("Gather", {holds, m.integers(positions)}, {{"axis", axis}});
      const Imported conv = translate(m.ending_in(y), {kSize, kSize, kSize});
      const Imported chosen =
          translate(m.ending_in(m.node("Where", {holds, y, m.number(9)})), {kSize, kSize, kSize});
      const Tensor x = testing::random_tensor({1, kSize, kSize, kSize}, 5, DType::kF32);
      const Tensor before = output_of(conv, x), after = output_of(chosen, x);
      for (std::int64_t i = 0; i < x.size(); ++i) {
        std::vector<std::int64_t> at{i / 16, i / 4 % 4, i % 4};  // row, column, channel
        std::int64_t& moved = at[static_cast<std::size_t>(axis == 1 ? 2 : axis - 2)];
        moved = positions[static_cast<std::size_t>(moved)];
        const float condition = before.data<float>()[at[0] * 16 + at[1] * 4 + at[2]];
        ASSERT_EQ(after.data<float>()[i], condition > 0 ? before.data<float>()[i] : 9);
      }
    }
  }
}

// Numbers of x, where a condition on x holds and where it does not.
std::vector<float> chosen(const std::function<std::string(ModelMaker&)>& condition) {
  ModelMaker m(kRows);
  const std::string y = m.node("Where", {condition(m), "x", m.number(9)});
  return values(translate(m.ending_in(y), {2, 3}), {-2, -1, 0, 1, 2, 3});
}

TEST(Choices, OfSeveralConditions) {
  const auto above = [](ModelMaker& m, float bound) {
    return m.node("Greater", {"x", m.number(bound)});
  };
  const auto below = [](ModelMaker& m, float bound) {
    return m.node("Not", {m.node("GreaterOrEqual", {"x", m.number(bound)})});
  };
  EXPECT_THAT(chosen([&](ModelMaker& m) {
                return m.node("And", {above(m, -2), below(m, 2)});
              }),
              ElementsAre(9, -1, 0, 1, 9, 9));
  EXPECT_THAT(chosen([&](ModelMaker& m) {
                return m.node("Or", {below(m, -1), above(m, 1)});
              }),
              ElementsAre(-2, 9, 9, 9, 2, 3));
  EXPECT_THAT(chosen([&](ModelMaker& m) {
                return m.node("Not", {m.node("And", {below(m, 1), mask(m, {1, 0, 1})})});
              }),
              ElementsAre(9, -1, 9, 1, 2, 3));
  EXPECT_THAT(
      chosen([&](ModelMaker& m) {
        return m.node("Or", {mask(m, {1, 0, 0}), m.node("And", {above(m, 0), below(m, 3)})});
      }),
      ElementsAre(-2, 9, 9, 1, 2, 9));
}

TEST(Choices, WhatIsNotZeroHolds) {
  const auto to_bool = [](ModelMaker& m, const std::string& x) {
    return m.node("Cast", {x}, {{"to", std::int64_t{9}}});
  };
  EXPECT_THAT(chosen([&](ModelMaker& m) { return to_bool(m, "x"); }),
              ElementsAre(-2, -1, 9, 1, 2, 3));
  // Moved, it is 0 or 1.
  EXPECT_THAT(
      chosen([&](ModelMaker& m) {
        const std::string rows = m.node("Reshape", {to_bool(m, "x"), m.integers({0, 6, 1})});
        return m.node("Not", {m.node("Reshape", {rows, m.integers({0, 2, 3})})});
      }),
      ElementsAre(9, 9, 0, 9, 9, 9));
}

// As attention that looks back alone has it.
TEST(Choices, ASumWithInfinitiesMasks) {
  ModelMaker m(kRows);
  const std::string mask = m.reals("mask", {2, 3}, {0, -INFINITY, -INFINITY, 0, 0, -INFINITY});
  const Imported imported =
      translate(m.ending_in(m.node("Softmax", {m.node("Add", {"x", mask})})), {2, 3});
  EXPECT_THAT(types_of(imported), ElementsAre("WhereGreater"));
  EXPECT_THAT(values(imported, {1, 2, 3, 4, 4, 5}), ElementsAre(1, 0, 0, 0.5F, 0.5F, 0));
  EXPECT_TRUE(module_of(imported)->named_parameters().empty());
}

TEST(Choices, SayWhatIsNotSupported) {
  const auto refusal = [](const std::function<std::string(ModelMaker&)>& make) {
    ModelMaker m(kRows);
    const OnnxModel model = m.ending_in(make(m));
    return message_of<InputError>([&] { translate(model, {2, 3}); });
  };
  EXPECT_THAT(refusal([](ModelMaker& m) {
                const std::string holds = m.node("Greater", {"x", m.number(0)});
                return m.node("Where", {holds, m.integers({1}), m.integers({2})});
              }),
              HasSubstr("holds whole numbers"));
  EXPECT_THAT(refusal([](ModelMaker& m) {
                return m.node("Where", {"x", "x", m.number(1)});
              }),
              HasSubstr("Where_0 (Where): its condition is neither a constant nor a comparison"));
  EXPECT_THAT(refusal([](ModelMaker& m) {
                const std::string holds = m.node("Less", {"x", m.number(0)});
                return m.node("Identity", {holds});
              }),
              HasSubstr("whole numbers"));
  EXPECT_THAT(refusal([](ModelMaker& m) {
                const std::string holds = m.node("Less", {"x", m.number(0)});
                return m.node("And", {holds, "x"});
              }),
              HasSubstr("And_1 (And): its condition is neither a constant nor a comparison"));
  EXPECT_THAT(refusal([](ModelMaker& m) {
                return m.node("Where", {mask(m, {1, 0, 1}), "x", m.weight("w", {2, 2, 2, 3})});
              }),
              HasSubstr("a constant [2, 2, 2, 3] has more dimensions than 3"));
}

}  // namespace
}  // namespace steelyard::imports
