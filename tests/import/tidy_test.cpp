// What is merged after translation, and what only looks as if it could be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using ::testing::ElementsAre;
using testing::random_tensor;

// Rows as images of one row: a reshape that another one merges into has one reader more behind it.
TEST(Tidy, ABiasStaysOutOfAConvolutionThatOthersRead) {
  for (const bool image : {true, false}) {
    const auto network = [&](bool with_sum) {
      ModelMaker m({{std::nullopt}, {2}, {6}});
      const std::string at = m.integers({2});
      const auto squeeze = [&](const std::string& x) { return m.node("Squeeze", {x, at}); };
      const auto unsqueeze = [&](const std::string& x) { return m.node("Unsqueeze", {x, at}); };
      std::string y;
      if (image) {
        y = squeeze(m.node("Conv", {unsqueeze("x"), m.weight("w", {3, 2, 1, 1})}));
        if (!with_sum) return translate(m.ending_in(y), {2, 6});
        const std::string sum = m.node("Add", {unsqueeze(y), m.weight("b", {1, 3, 1, 1})});
        y = m.node("Add", {m.node("Relu", {y}), squeeze(sum)});
      } else {
        y = m.node("Conv", {"x", m.weight("w", {3, 2, 1})});
        if (!with_sum) return translate(m.ending_in(y), {2, 6});
        const std::string other = unsqueeze(y);
        const std::string sum = m.node("Add", {squeeze(other), m.weight("b", {1, 3, 1})});
        y = m.node("Add", {squeeze(m.node("Relu", {other})), sum});
      }
      return translate(m.ending_in(y), {2, 6});
    };
    const Tensor x = random_tensor({2, 2, 6}, 1, DType::kF32);
    const Tensor conv = output_of(network(false), x), sum = output_of(network(true), x);
    const Tensor bias = random_tensor({3}, 2, DType::kF32);  // the second weight of the maker
    ASSERT_EQ(sum.shape(), (Shape{2, 3, 6}));
    for (std::int64_t i = 0; i < sum.size(); ++i) {
      const float c = conv.data<float>()[i];
      ASSERT_FLOAT_EQ(sum.data<float>()[i], std::max(c, 0.0F) + c + bias.data<float>()[i / 6 % 3]);
    }
  }
}

// As PyTorch's attention to other values than its own takes them from one tensor.
TEST(Tidy, AMatrixAndABiasThatAreComputedFromConstantsAreALinear) {
  ModelMaker m({{std::nullopt}, {4}, {3}});
  const auto last = [&](const std::string& all) {  // the rows from 2 on
    return m.node("Slice", {all, m.integers({2}), m.integers({7}), m.integers({0})});
  };
  const std::string weight = last(m.weight("weights", {7, 3})),
                    bias = last(m.weight("biases", {7}));
  const std::string turned =
      m.node("Transpose", {weight}, {{"perm", std::vector<std::int64_t>{1, 0}}});
  const std::string sum = m.node("Add", {m.node("MatMul", {"x", turned}), bias});
  const Imported imported = translate(m.ending_in(m.node("Relu", {sum})), {4, 3});
  EXPECT_THAT(types_of(imported), ElementsAre("Linear", "ReLU"));
  const Tensor x = random_tensor({2, 4, 3}, 9, DType::kF32), y = output_of(imported, x);
  ASSERT_EQ(y.shape(), (Shape{2, 4, 5}));
  const Tensor w = random_tensor({7, 3}, 1, DType::kF32), b = random_tensor({7}, 2, DType::kF32);
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const std::int64_t row = 2 + i % 5;
    float value = b.data<float>()[row];
    for (std::int64_t k = 0; k < 3; ++k) {
      value += w.data<float>()[row * 3 + k] * x.data<float>()[i / 5 * 3 + k];
    }
    EXPECT_NEAR(y.data<float>()[i], std::max(value, 0.0F), 1e-5);
  }
}

// Arithmetic with numbers becomes one map, unless digits are lost on the way.
TEST(Tidy, RoundingIsNotMergedAway) {
  const auto network = [](float factor, float added, float subtracted) {
    ModelMaker m({{std::nullopt}, {4}});
    const std::string sum =
        m.node("Add", {m.node("Mul", {"x", m.number(factor)}), m.number(added)});
    return translate(m.ending_in(m.node("Sub", {sum, m.number(subtracted)})), {4});
  };
  const Tensor x = Tensor::from<float>({0.4F, 0.6F, -1.7F, 3.2F}, {1, 4});
  constexpr float kRounds = 12582912;  // 1.5 * 2^23
  EXPECT_THAT(testing::values(output_of(network(1, kRounds, kRounds), x)),
              ElementsAre(0, 1, -2, 3));
  EXPECT_THAT(testing::values(output_of(network(100, kRounds, kRounds), x)),
              ElementsAre(40, 60, -170, 320));
  EXPECT_THAT(types_of(network(2, 3, 3.5F)), ElementsAre("Affine"));
  EXPECT_THAT(types_of(network(1 / 58.4F, 123.7F / 58.4F, 2)), ElementsAre("Affine"));
}

}  // namespace
}  // namespace steelyard::imports
