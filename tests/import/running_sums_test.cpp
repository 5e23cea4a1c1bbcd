// CumSum, of values and of the positions of words.
#include <gmock/gmock.h>

#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Attributes = std::map<std::string, OnnxAttributeValue>;

// Of images, which are held with their channels last: along channels, rows and columns.
TEST(RunningSums, GoAlongAnyDimensionOfASample) {
  const auto sums = [](std::int64_t axis) {
    ModelMaker m({{std::nullopt}, {2}, {2}, {2}});
    const Imported imported =
        translate(m.ending_in(m.node("CumSum", {"x", m.number_of(axis)})), {2, 2, 2});
    return testing::values(
        output_of(imported, Tensor::from<float>({1, 2, 4, 8, 16, 32, 64, 128}, {1, 2, 2, 2})));
  };
  EXPECT_THAT(sums(1), ElementsAre(1, 3, 4, 12, 16, 48, 64, 192));
  EXPECT_THAT(sums(2), ElementsAre(1, 4, 17, 68, 2, 8, 34, 136));
  EXPECT_THAT(sums(3), ElementsAre(1, 5, 16, 80, 2, 10, 32, 160));
  EXPECT_EQ(sums(-1), sums(3));
  EXPECT_THAT(testing::message_of<InputError>([&] { sums(0); }), HasSubstr("over the batch"));
}

// RoBERTa counts the words that are no padding, 1, and takes the types of tokens, zeros, from a
// table at these numbers.
Imported of_positions(const Attributes& sum) {
  ModelMaker m({{std::nullopt}, {5}});
  m.model().inputs[0].type = "int64";
  const Attributes first{{"axis", std::int64_t{0}}}, second{{"axis", std::int64_t{1}}};
  const std::string padding = m.node("Equal", {"x", m.integers({1})});
  const std::string words = m.node("Cast", {m.node("Not", {padding})}, {{"to", std::int64_t{6}}});
  const std::string count = m.node("CumSum", {words, m.number_of(1)}, sum);
  const std::string at = m.node("Add", {m.node("Mul", {count, words}), m.integers({1})});
  const std::string batch = m.node("Gather", {m.node("Shape", {"x"}), m.integers({0})}, first);
  const std::string zeros = m.integers({0, 0, 0, 0, 0, 0, 0});
  m.model().initializers[zeros].shape = {1, 7};
  const std::string types =
      m.node("Expand", {zeros, m.node("Concat", {batch, m.integers({7})}, first)});
  const std::string type = m.node("GatherElements", {types, at}, second);
  const std::string by_type = m.node("Gather", {m.reals("types", {2, 1}, {100, 200}), type});
  const std::string by_place =
      m.node("Gather", {m.reals("places", {7, 1}, {0, 1, 2, 3, 4, 5, 6}), at});
  return translate(m.ending_in(m.node("Add", {by_place, by_type})), {5});
}

TEST(RunningSums, CountWordsThatAreNoPadding) {
  const auto positions = [](const Attributes& sum) {
    const Tensor words = Tensor::from<float>({7, 8, 9, 1, 1, 3, 1, 4, 5, 6}, {2, 5});
    return testing::values(output_of(of_positions(sum), words));
  };
  EXPECT_THAT(positions({}), ElementsAre(102, 103, 104, 101, 101, 102, 101, 103, 104, 105));
  EXPECT_THAT(positions({{"exclusive", std::int64_t{1}}}),
              ElementsAre(101, 102, 103, 101, 101, 101, 101, 102, 103, 104));
  EXPECT_THAT(positions({{"reverse", std::int64_t{1}}}),
              ElementsAre(104, 103, 102, 101, 101, 105, 101, 104, 103, 102));
}

}  // namespace
}  // namespace steelyard::imports
