// What is computed of constants at import.
#include "steelyard/import/fold.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "steelyard/import/unsupported.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using ::testing::ElementsAre;
using testing::message_of;

using Ints = std::vector<std::int64_t>;
using Floats = std::vector<float>;
using Attributes = std::map<std::string, OnnxAttributeValue>;

constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kHighest = std::numeric_limits<std::int64_t>::max();

Constant reals(Shape shape, Floats values) { return {std::move(shape), true, std::move(values)}; }
Constant reals(Floats values) { return reals({std::ssize(values)}, values); }
Constant integers(Shape shape, const Ints& values) {
  Constant constant{.shape = std::move(shape)};
  for (const std::int64_t v : values) constant.integers.push_back({v});
  return constant;
}
Constant integers(const Ints& values) { return integers({std::ssize(values)}, values); }

std::vector<Constant> outputs_of(const std::string& op, const std::vector<Constant>& inputs,
                                 const Attributes& attributes = {}, std::size_t outputs = 1) {
  const OnnxNode node{.name = op,
                      .op = op,
                      .inputs = {},
                      .outputs = std::vector<std::string>(outputs, "y"),
                      .attributes = attributes};
  std::vector<const Constant*> pointers;
  for (const Constant& input : inputs) pointers.push_back(&input);
  return fold(node, pointers).value();
}

Constant folded(const std::string& op, const std::vector<Constant>& inputs,
                const Attributes& attributes = {}) {
  return outputs_of(op, inputs, attributes).at(0);
}

Ints whole(const Constant& constant) {
  EXPECT_FALSE(constant.floating);
  Ints values;
  for (const Extent& e : constant.integers) values.push_back(e.value);
  return values;
}

std::string refusal(const std::string& op, const std::vector<Constant>& inputs,
                    const Attributes& attributes = {}) {
  return message_of<Unsupported>([&] { folded(op, inputs, attributes); });
}

Constant cast(const Constant& x, std::int64_t type) { return folded("Cast", {x}, {{"to", type}}); }

TEST(Fold, CastsGiveWhatTheTypeHolds) {
  constexpr std::int64_t kInt64 = 7, kBool = 9, kHalf = 10, kBrainFloat = 16;
  EXPECT_EQ(whole(cast(integers({2, 0, -1}), kBool)), (Ints{1, 0, 1}));
  EXPECT_EQ(whole(cast(reals({0.25F, 0, NAN, INFINITY}), kBool)), (Ints{1, 0, 1, 1}));
  EXPECT_EQ(whole(cast(reals({1.75F, -1.75F}), kInt64)), (Ints{1, -1}));
  EXPECT_THAT(cast(reals({1.23456F, 1e-8F, 70000}), kHalf).reals,
              ElementsAre(1.234375F, 0, INFINITY));
  EXPECT_THAT(cast(reals({1.23456F}), kBrainFloat).reals, ElementsAre(1.234375F));
  EXPECT_THAT(cast(integers({2049}), kHalf).reals, ElementsAre(2048));
}

// Numbers of a hostile file do not overflow.
TEST(Fold, RefusesWholeNumbersBeyond64Bits) {
  EXPECT_EQ(refusal("Neg", {integers({kLowest})}), "an integer beyond 64 bits");
  EXPECT_EQ(refusal("Mul", {integers({kHighest}), integers({2})}), "an integer beyond 64 bits");
  const auto range = [](std::int64_t first, std::int64_t limit, std::int64_t step) {
    return whole(
        folded("Range", {integers({}, {first}), integers({}, {limit}), integers({}, {step})}));
  };
  EXPECT_EQ(range(kHighest, kHighest - 5, -2), (Ints{kHighest, kHighest - 2, kHighest - 4}));
  EXPECT_EQ(range(kHighest - 1, kHighest, 5), (Ints{kHighest - 1}));
  EXPECT_EQ(range(3, 3, 1), Ints{});
  EXPECT_EQ(
      refusal("Range", {integers({}, {kLowest}), integers({}, {kHighest}), integers({}, {1})}),
      "a constant that is too large");
  const Constant sizes = integers({kHighest, kHighest, -1});
  EXPECT_THAT(refusal("Reshape", {integers({1, 2}), sizes}), ::testing::HasSubstr("is too large"));
  const Constant empty{.shape = {0, kHighest, kHighest}, .floating = true};
  EXPECT_THAT(refusal("Transpose", {empty}), ::testing::HasSubstr("is too large"));
}

}  // namespace
}  // namespace steelyard::imports
