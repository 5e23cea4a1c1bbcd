// What is computed of constants at import.
#include "steelyard/import/graph/fold.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "steelyard/import/constants.h"
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
  OnnxModel model;
  return fold(node, pointers, model).value();
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
  constexpr std::int64_t kUint8 = 2, kInt8 = 3, kInt32 = 6, kString = 8, kUint64 = 13;
  EXPECT_EQ(whole(cast(reals({255.9F}), kUint8)), Ints{255});
  const auto refused = [](const Constant& x, std::int64_t type) {
    return refusal("Cast", {x}, {{"to", type}});
  };
  EXPECT_EQ(refused(integers({300}), kUint8), "of 300 to a type that does not hold it");
  EXPECT_EQ(refused(integers({200}), kInt8), "of 200 to a type that does not hold it");
  EXPECT_EQ(refused(integers({(std::int64_t{1} << 32) + 5}), kInt32),
            "of 4294967301 to a type that does not hold it");
  EXPECT_EQ(refused(reals({-1}), kUint64), "of -1 to a type that does not hold it");
  EXPECT_EQ(whole(cast(reals({-INFINITY}), kInt64)), Ints{kLowest});
  EXPECT_EQ(whole(cast(reals({-INFINITY}), kInt32)), Ints{INT32_MIN});
  for (const float none : {INFINITY, NAN, -1e19F}) {
    EXPECT_EQ(refused(reals({none}), kInt64), "a float that no integer holds");
  }
  EXPECT_EQ(refused(reals({-INFINITY}), kInt8), "a float that no integer holds");
  EXPECT_EQ(refused(reals({1.5F}), kString), "to a type other than numbers and bool");
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

// A few numbers of a small file do not make gigabytes; what a large file holds may be computed
// with.
TEST(Fold, BoundsTheMemoryOfConstants) {
  constexpr std::int64_t kMost = kMostGrownIntegers;
  EXPECT_EQ(refusal("Range", {integers({}, {0}), integers({}, {kMost + 1}), integers({}, {1})}),
            "a constant that is too large");
  EXPECT_THAT(refusal("Expand", {integers({1}), integers({2, kMost / 2 + 1})}),
              ::testing::HasSubstr("is too large"));
  EXPECT_THAT(refusal("Expand", {reals({1}), integers({2, kMostGrownFloats / 2 + 1})}),
              ::testing::HasSubstr("is too large"));
  EXPECT_EQ(grown_size({2, kMost}, true, 1), 2 * kMost);
  EXPECT_EQ(grown_size({2, kMost}, false, 2 * kMost), 2 * kMost);
  EXPECT_THROW(grown_size({2, kMost}, false, kMost), Unsupported);

  // 16 bytes for each of two numbers must be there; eight and one for each are taken.
  const OnnxNode negation{.name = "n", .op = "Neg", .inputs = {}, .outputs = {"y"}};
  const Constant two = reals({1, 2});
  OnnxModel model;
  model.source = "m.onnx";
  model.foldable_bytes = 32;
  EXPECT_EQ(fold(negation, {&two}, model)->at(0).reals.back(), -2);
  EXPECT_EQ(model.foldable_bytes, 22);
  EXPECT_EQ(message_of<UnsupportedGraph>([&] { fold(negation, {&two}, model); }),
            "m.onnx: 1 node cannot be imported: n (Neg): constants computed from others would take "
            "more than 768 MiB and eight times what the file's own take");
  // Products are work: 2^31 of them.
  const Constant matrix = reals({1024, 1024}, Floats(1024 * 1024, 0));
  const Constant wide = reals({1024, 2048}, Floats(1024 * 2048, 0));
  const OnnxNode product{.name = "p", .op = "MatMul", .inputs = {}, .outputs = {"y"}};
  model.foldable_bytes = std::int64_t{1} << 28;
  EXPECT_THROW(fold(product, {&matrix, &wide}, model), UnsupportedGraph);
}

TEST(Fold, ComparesAndChooses) {
  const Constant x = reals({1, 2, 3}), two = reals({}, {2});
  EXPECT_EQ(whole(folded("Greater", {x, two})), (Ints{0, 0, 1}));
  EXPECT_EQ(whole(folded("GreaterOrEqual", {x, two})), (Ints{0, 1, 1}));
  EXPECT_EQ(whole(folded("Less", {x, two})), (Ints{1, 0, 0}));
  EXPECT_EQ(whole(folded("LessOrEqual", {x, two})), (Ints{1, 1, 0}));
  EXPECT_EQ(whole(folded("Less", {integers({1, 3}), integers({2})})), (Ints{1, 0}));
  const Constant a = integers({0, 0, 1, 1}), b = integers({0, 1, 0, 1});
  EXPECT_EQ(whole(folded("And", {a, b})), (Ints{0, 0, 0, 1}));
  EXPECT_EQ(whole(folded("Or", {a, b})), (Ints{0, 1, 1, 1}));
  EXPECT_EQ(whole(folded("Xor", {a, b})), (Ints{0, 1, 1, 0}));
  EXPECT_EQ(whole(folded("Not", {a})), (Ints{1, 1, 0, 0}));
  EXPECT_THAT(folded("Max", {x, two, reals({2.5F})}).reals, ElementsAre(2.5F, 2.5F, 3));
  EXPECT_EQ(whole(folded("Min", {integers({1, 5}), integers({3})})), (Ints{1, 3}));
  EXPECT_THAT(folded("Clip", {x}, {{"min", 1.5F}, {"max", 2.5F}}).reals,
              ElementsAre(1.5F, 2, 2.5F));
  EXPECT_EQ(whole(folded("Clip", {integers({-1, 9}), integers({}, {0}), integers({}, {4})})),
            (Ints{0, 4}));
  // There is a sample at least, and how many there are is not known.
  const Constant batch{.shape = {1}, .integers = {{2, true}}};
  EXPECT_EQ(whole(folded("Greater", {batch, integers({0})})), (Ints{1}));
  EXPECT_EQ(refusal("Greater", {batch, integers({1})}), "a comparison with the batch's size");
}

TEST(Fold, ComputesEachElement) {
  EXPECT_THAT(folded("Pow", {reals({3, 2}), integers({2, 3})}).reals, ElementsAre(9, 8));
  EXPECT_EQ(refusal("Pow", {integers({3}), integers({2})}), "a power of whole numbers");
  EXPECT_THAT(folded("Sum", {reals({1, 2}), reals({10}), reals({100})}).reals,
              ElementsAre(111, 112));
  EXPECT_TRUE(std::isnan(folded("Max", {reals({3}), reals({NAN})}).reals[0]));
  EXPECT_TRUE(std::isnan(folded("Min", {reals({NAN}), reals({3})}).reals[0]));
  const Constant x = reals({-2.5F, -0.5F, 0.5F, 1.5F});
  EXPECT_THAT(folded("Round", {x}).reals, ElementsAre(-2, 0, 0, 2));
  EXPECT_THAT(folded("Floor", {x}).reals, ElementsAre(-3, -1, 0, 1));
  EXPECT_THAT(folded("Ceil", {x}).reals, ElementsAre(-2, 0, 1, 2));
  EXPECT_THAT(folded("Sign", {x}).reals, ElementsAre(-1, -1, 1, 1));
  EXPECT_EQ(whole(folded("Sign", {integers({-7, 0})})), (Ints{-1, 0}));
  EXPECT_EQ(whole(folded("Abs", {integers({-7, 2})})), (Ints{7, 2}));
  EXPECT_THAT(folded("Sin", {reals({0})}).reals, ElementsAre(0));
  EXPECT_THAT(folded("Cos", {reals({0})}).reals, ElementsAre(1));
  const Constant five = integers({5, -5}), three = integers({3});
  EXPECT_EQ(whole(folded("Mod", {five, three})), (Ints{2, 1}));
  EXPECT_EQ(whole(folded("Mod", {five, integers({-3})})), (Ints{-1, -2}));
  EXPECT_EQ(whole(folded("Mod", {five, three}, {{"fmod", std::int64_t{1}}})), (Ints{2, -2}));
  EXPECT_EQ(refusal("Mod", {five, integers({0})}), "a division by 0");
}

TEST(Fold, GatherElementsTakesAPositionForEachElement) {
  const Constant x = integers({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(
      whole(folded("GatherElements", {x, integers({1, 2}, {2, -3})}, {{"axis", std::int64_t{1}}})),
      (Ints{3, 1}));
  EXPECT_EQ(whole(folded("GatherElements", {x, integers({3, 2}, {0, 1, 1, 0, 0, 0})})),
            (Ints{1, 5, 4, 2, 1, 2}));
  EXPECT_EQ(refusal("GatherElements", {x, integers({1, 2}, {0, 2})}),
            "an index is outside of its axis");
  EXPECT_EQ(refusal("GatherElements", {x, integers({1, 4}, {0, 0, 0, 0})}),
            "indices [1, 4] of [2, 3]");
}

TEST(Fold, MovesElements) {
  const Constant x = integers({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(whole(folded("Tile", {x, integers({1, 2})})),
            (Ints{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}));
  EXPECT_EQ(refusal("Tile", {x, integers({kHighest, 1})}), "too large");
  EXPECT_EQ(whole(folded("Trilu", {x})), (Ints{1, 2, 3, 0, 5, 6}));
  EXPECT_EQ(whole(folded("Trilu", {x, integers({}, {1})}, {{"upper", std::int64_t{0}}})),
            (Ints{1, 2, 0, 4, 5, 6}));
  EXPECT_EQ(whole(folded("Pad", {x, integers({0, 1, 1, 0}), integers({}, {9})})),
            (Ints{9, 1, 2, 3, 9, 4, 5, 6, 9, 9, 9, 9}));
  EXPECT_EQ(folded("Flatten", {x}, {{"axis", std::int64_t{0}}}).shape, (Shape{1, 6}));
  const Attributes along{{"axis", std::int64_t{1}}};
  const auto parts = outputs_of("Split", {x, integers({1, 2})}, along, 2);
  EXPECT_EQ(whole(parts.at(0)), (Ints{1, 4}));
  EXPECT_EQ(whole(parts.at(1)), (Ints{2, 3, 5, 6}));
  EXPECT_EQ(whole(outputs_of("Split", {x}, along, 2).at(1)), (Ints{3, 6}));
  EXPECT_EQ(refusal("Split", {x, integers({kHighest, kHighest})}, along), "parts that do not fit");
  EXPECT_EQ(whole(folded("Size", {x})), (Ints{6}));
  EXPECT_EQ(whole(folded("Shape", {x}, {{"start", std::int64_t{-1}}})), (Ints{3}));
  EXPECT_EQ(whole(folded("Shape", {x}, {{"end", std::int64_t{1}}})), (Ints{2}));
  // As ONNX Runtime adds it up: eight steps of 0.1 are not 0.8.
  const Constant range =
      folded("Range", {reals({}, {0.1F}), reals({}, {1.05F}), reals({}, {0.1F})});
  ASSERT_EQ(range.size(), 10);
  EXPECT_EQ(range.reals[7], 0.8000000715255737F);
  EXPECT_EQ(refusal("Range", {reals({}, {0}), reals({}, {1}), reals({}, {0})}), "a step of 0");
  EXPECT_EQ(refusal("Range", {reals({}, {0}), reals({}, {NAN}), reals({}, {1})}),
            "expected finite numbers");
  EXPECT_EQ(folded("Range", {reals({}, {1}), reals({}, {0}), reals({}, {1})}).size(), 0);
}

// Known where any size of the batch says the same.
TEST(Fold, ComparesMultiplesOfTheBatchsSize) {
  const auto multiple = [](std::int64_t of) {
    return Constant{.shape = {}, .integers = {{of, true}}};
  };
  const auto equal = [&](const Constant& a, std::int64_t b) {
    return whole(folded("Equal", {integers({}, {b}), a}));
  };
  EXPECT_EQ(equal(multiple(1), 0), Ints{0});
  EXPECT_EQ(equal(multiple(1), -1), Ints{0});
  EXPECT_EQ(equal(multiple(2), 3), Ints{0});
  EXPECT_EQ(equal(multiple(2), 1), Ints{0});
  EXPECT_EQ(whole(folded("Equal", {multiple(2), multiple(2)})), Ints{1});
  EXPECT_EQ(whole(folded("Equal", {multiple(2), multiple(1)})), Ints{0});
  for (const std::int64_t number : {1, 2, 7}) {
    EXPECT_EQ(refusal("Equal", {multiple(1), integers({}, {number})}),
              "a comparison with the batch's size");
  }
  EXPECT_EQ(refusal("Equal", {integers({}, {4}), multiple(2)}),
            "a comparison with the batch's size");
}

TEST(Fold, RefusesInputsThatAreNotThere) {
  const Constant x = integers({1, 1}, {3});
  for (const std::string op : {"Squeeze", "Unsqueeze"}) {
    EXPECT_EQ(refusal(op, {}), "expected an input 1");
  }
  EXPECT_EQ(refusal("Trilu", {x, integers({0}, {})}), "k: expected one number");
}

TEST(Fold, ComputesOfSeveralElements) {
  const Constant x = reals({2, 2}, {1, -2, 3, 4});
  const Attributes rows{{"axes", Ints{-1}}, {"keepdims", std::int64_t{0}}};
  EXPECT_THAT(folded("ReduceSum", {x}, rows).reals, ElementsAre(-1, 7));
  EXPECT_THAT(folded("ReduceMean", {x, integers({0})}).reals, ElementsAre(2, 1));
  EXPECT_EQ(folded("ReduceMean", {x, integers({0})}).shape, (Shape{1, 2}));
  EXPECT_THAT(folded("ReduceMax", {x}).reals, ElementsAre(4));
  EXPECT_THAT(folded("ReduceMin", {x}, rows).reals, ElementsAre(-2, 3));
  EXPECT_THAT(folded("ReduceProd", {x}, rows).reals, ElementsAre(-2, 12));
  EXPECT_THAT(folded("ReduceL1", {x}, rows).reals, ElementsAre(3, 7));
  EXPECT_THAT(folded("ReduceL2", {x}, rows).reals, ElementsAre(std::sqrt(5.0F), 5));
  EXPECT_THAT(folded("ReduceSumSquare", {x}, rows).reals, ElementsAre(5, 25));
  EXPECT_FLOAT_EQ(folded("ReduceLogSumExp", {reals({0, std::log(3.0F)})}).reals[0], std::log(4.0F));
  EXPECT_FLOAT_EQ(folded("ReduceLogSumExp", {reals({800, 800})}).reals[0], 800 + std::log(2.0F));
  EXPECT_EQ(folded("ReduceLogSumExp", {reals({-INFINITY})}).reals[0], -INFINITY);
  EXPECT_EQ(whole(folded("ReduceSum", {integers({3, 4})})), (Ints{7}));
  EXPECT_EQ(whole(folded("ReduceMax", {integers({3, 4})})), (Ints{4}));
  EXPECT_EQ(refusal("ReduceMean", {integers({3, 4})}), "of whole numbers");
  EXPECT_EQ(refusal("ReduceSum", {reals({0, 2}, {})}), "of no elements");
  const Constant counts = integers({1, 2, 3}), first = integers({}, {0});
  EXPECT_EQ(whole(folded("CumSum", {counts, first})), (Ints{1, 3, 6}));
  EXPECT_EQ(whole(folded("CumSum", {counts, first},
                         {{"exclusive", std::int64_t{1}}, {"reverse", std::int64_t{1}}})),
            (Ints{5, 3, 0}));
  EXPECT_THAT(folded("CumSum", {x, first}).reals, ElementsAre(1, -2, 4, 2));
  EXPECT_THAT(folded("MatMul", {x, reals({2, 1}, {1, 2})}).reals, ElementsAre(-3, 11));
  const Constant stacked = folded("MatMul", {reals({2, 1, 2}, {1, 0, 0, 1}), x});
  EXPECT_EQ(stacked.shape, (Shape{2, 1, 2}));
  EXPECT_THAT(stacked.reals, ElementsAre(1, -2, 3, 4));
  EXPECT_EQ(refusal("MatMul", {x, reals({3, 1}, {1, 2, 3})}), "matrices that do not fit");
}

}  // namespace
}  // namespace steelyard::imports
