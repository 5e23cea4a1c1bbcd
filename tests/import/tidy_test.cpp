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
