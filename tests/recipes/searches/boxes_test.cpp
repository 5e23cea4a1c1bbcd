#include "steelyard/recipes/searches/boxes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "steelyard/recipes/searches/fidelity.h"

namespace steelyard {
namespace {

const std::vector<std::string> kTypes{"MulConstant", "Sigmoid", "Conv2d"};

// For each value of [values, anchors], the source of its row.
std::vector<std::int32_t> of_rows(const std::vector<std::int32_t>& rows, std::size_t anchors) {
  std::vector<std::int32_t> sources;
  for (const std::int32_t row : rows) sources.insert(sources.end(), anchors, row);
  return sources;
}

HeadOutput output_of(const Shape& shape, const std::vector<std::int32_t>& sources,
                     std::int64_t first = 0) {
  return {first, shape, sources};
}

TEST(DetectionHead, IsOfBoxesAndScoresOfASigmoid) {
  const std::vector<std::int32_t> values{0, 0, 0, 0, 1, 1};
  const std::vector<std::int32_t> sources = of_rows(values, 10);
  const DetectionHead columns{
      .anchors = 10, .classes = 2, .boxes = {7, 1, 10}, .scores = {47, 1, 10}};
  EXPECT_EQ(detection_head(output_of({6, 10}, sources, 7), kTypes), columns);
  EXPECT_EQ(detection_head(output_of({1, 6, 10}, sources), kTypes)->anchors, 10);
  std::vector<std::int32_t> rows;
  for (int anchor = 0; anchor < 3; ++anchor) rows.insert(rows.end(), values.begin(), values.end());
  const DetectionHead in_rows{
      .anchors = 3, .classes = 1, .boxes = {0, 6, 1}, .scores = {4, 6, 1}, .objectness = true};
  EXPECT_EQ(detection_head(output_of({3, 6}, rows), kTypes), in_rows);
}

TEST(DetectionHead, IsNothingElse) {
  const auto has = [](const Shape& shape, const std::vector<std::int32_t>& values) {
    const std::vector<std::int32_t> sources = of_rows(values, 10);
    return detection_head(output_of(shape, sources), kTypes).has_value();
  };
  EXPECT_TRUE(has({6, 10}, {0, 0, 0, 0, 1, 1}));
  EXPECT_FALSE(has({6, 10}, {0, 0, 0, 1, 1, 1}));
  EXPECT_FALSE(has({6, 10}, {0, 0, 0, 0, 1, 0}));
  EXPECT_FALSE(has({6, 10}, {2, 2, 2, 2, 1, 1})) << "places that a layer gives are not yet boxes";
  EXPECT_FALSE(has({4, 10}, {0, 0, 0, 0}));
  EXPECT_FALSE(has({6, 2, 5}, {0, 0, 0, 0, 1, 1}));
}

TEST(DetectionHead, MayBeOfTwoOutputs) {
  const std::vector<std::string> types{"Add", "Sigmoid", "Softmax", "Conv2d"};
  const std::vector<std::int32_t> boxes(40, 0), chances(20, 1), shares(20, 2), raw(40, 3);
  const auto head = [&](const HeadOutput& where, const HeadOutput& scores) {
    return detection_head(where, scores, types);
  };
  const DetectionHead expected{
      .anchors = 10, .classes = 2, .boxes = {5, 4, 1}, .scores = {45, 2, 1}, .softmax = true};
  EXPECT_EQ(head(output_of({10, 4}, boxes, 5), output_of({10, 2}, shares, 45)), expected);
  const DetectionHead columns{
      .anchors = 10, .classes = 2, .boxes = {20, 1, 10}, .scores = {0, 1, 10}};
  EXPECT_EQ(head(output_of({1, 4, 10}, boxes, 20), output_of({2, 10}, chances)), columns);
  const std::vector<std::int32_t> ten(10, 1), mixed{1, 1, 1, 1, 1, 1, 1, 1, 1, 0};
  EXPECT_EQ(head(output_of({10, 4}, boxes), output_of({1, 10}, ten, 40))->classes, 1);
  EXPECT_EQ(head(output_of({10, 4}, boxes), output_of({10}, mixed, 40)), std::nullopt);
  EXPECT_EQ(head(output_of({10, 4}, raw), output_of({10, 2}, chances)), std::nullopt);
  EXPECT_EQ(head(output_of({10, 4}, boxes), output_of({20}, chances)), std::nullopt);
  EXPECT_EQ(head(output_of({2, 5, 4}, boxes), output_of({10, 2}, chances)), std::nullopt);
  EXPECT_EQ(head(output_of({10, 4}, boxes), output_of({2, 10}, shares)), std::nullopt)
      << "a Softmax over anchors";
}

constexpr DetectionHead kHead{.anchors = 3, .classes = 2, .boxes = {0, 1, 3}, .scores = {12, 1, 3}};
// Two boxes of 10 x 10 far from each other; the third is the first again, a little worse.
const std::vector<float> kBoxes{10,   50,   11,    // x
                                10,   50,   10,    // y
                                10,   10,   10,    // width
                                10,   10,   10,    // height
                                0.9F, 0.1F, 0.8F,  // of the first class
                                0.0F, 0.6F, 0.1F};

Tensor one_sample(const std::vector<float>& values) {
  return Tensor::from(values, {1, std::ssize(values)});
}

BoxAgreement compare(const DetectionHead& head, const std::vector<float>& in_float,
                     const std::vector<float>& quantized) {
  return compare_boxes(head, one_sample(in_float), one_sample(quantized));
}

TEST(CompareBoxes, CountsThoseThatOverlapByHalf) {
  const BoxAgreement same = compare(kHead, kBoxes, kBoxes);
  EXPECT_EQ(same.in_float, 2) << "the third repeats the first";
  EXPECT_EQ(same.percent(), 100);
  std::vector<float> moved = kBoxes;
  moved[0] += 3;  // 70 of 130 are shared
  moved[2] += 3;
  EXPECT_EQ(compare(kHead, kBoxes, moved).matched, 2);
  moved[0] += 1;  // 60 of 140
  moved[2] += 3;
  EXPECT_EQ(compare(kHead, kBoxes, moved).percent(), 50);
}

TEST(CompareBoxes, OfAnotherClassOrMissingDiffer) {
  std::vector<float> other = kBoxes;
  std::swap(other[13], other[16]);  // the class of the second
  EXPECT_EQ(compare(kHead, kBoxes, other).percent(), 50);
  other = kBoxes;
  other[16] = 0.2F;  // below .25
  const BoxAgreement found = compare(kHead, kBoxes, other);
  EXPECT_EQ(found.quantized, 1);
  EXPECT_NEAR(found.percent().value(), 100.0 * 2 / 3, 1e-12);
  EXPECT_EQ(BoxAgreement().percent(), std::nullopt);
}

TEST(CompareBoxes, SumsOverSamples) {
  std::vector<float> two = kBoxes, other = kBoxes;
  other[16] = 0.2F;
  two.insert(two.end(), kBoxes.begin(), kBoxes.end());
  other.insert(other.end(), kBoxes.begin(), kBoxes.end());
  const BoxAgreement found =
      compare_boxes(kHead, Tensor::from(two, {2, 18}), Tensor::from(other, {2, 18}));
  EXPECT_EQ(found.in_float, 4);
  EXPECT_EQ(found.quantized, 3);
  EXPECT_EQ(found.matched, 3);
}

TEST(CompareBoxes, ReadsCornersAndRowsWithObjectness) {
  EXPECT_EQ(settled(kHead, one_sample(kBoxes)), kHead);
  const std::vector<float> corners{5,    45,   6,     //
                                   5,    45,   5,     //
                                   15,   55,   16,    //
                                   15,   55,   15,    //
                                   0.9F, 0.1F, 0.8F,  //
                                   0.0F, 0.6F, 0.1F};
  const std::optional<DetectionHead> head = settled(kHead, one_sample(corners));
  ASSERT_TRUE(head && head->corners);
  EXPECT_EQ(compare(*head, corners, corners).in_float, 2);
  const DetectionHead rows{
      .anchors = 2, .classes = 1, .boxes = {0, 6, 1}, .scores = {4, 6, 1}, .objectness = true};
  const std::vector<float> two{10, 10, 4, 4, 0.9F, 0.5F, 40, 40, 4, 4, 0.4F, 0.5F};
  EXPECT_EQ(compare(rows, two, two).in_float, 1) << ".4 x .5 is below .25";
}

TEST(CompareBoxes, LeavesOutTheClassOfNothing) {
  const DetectionHead head{
      .anchors = 3, .classes = 2, .boxes = {6, 4, 1}, .scores = {0, 2, 1}, .softmax = true};
  const std::vector<float> values{0.9F, 0.1F, 0.2F, 0.8F, 0.7F, 0.3F,  // shares
                                  0,    0,    4,    4,    0,    0,    9, 9, 20, 20, 30, 30};
  const std::optional<DetectionHead> found = settled(head, one_sample(values));
  ASSERT_TRUE(found && found->corners);
  EXPECT_EQ(found->nothing, 0);
  EXPECT_EQ(compare(*found, values, values).in_float, 2);
}

TEST(CompareBoxes, NumbersWithNegativeSizesAreNoBoxes) {
  std::vector<float> numbers = kBoxes;
  numbers[8] = -3;  // the width of the third, which is found
  EXPECT_EQ(settled(kHead, one_sample(numbers)), std::nullopt);
  numbers[14] = 0.1F;
  EXPECT_EQ(settled(kHead, one_sample(numbers)), kHead) << "nobody finds it";
}

// Scores are small beside boxes in pixels: their own noise counts.
TEST(Fidelity, OfAnOutputThatIsJoinedIsThatOfItsWorstPart) {
  OutputSpan output{"boxes", 0, 18};
  output.sources = of_rows({0, 0, 0, 0, 1, 1}, 3);
  output.head = kHead;
  std::vector<float> worse = kBoxes;
  worse[12] = 0.5F;
  const Shape one{1, 18};
  const Fidelity found = fidelity(Tensor::from(kBoxes, one), Tensor::from(worse, one), {output});
  const double scores = 0.81 + 0.01 + 0.64 + 0.36 + 0.01;
  EXPECT_NEAR(found.sqnr_db(), 10 * std::log10(scores / 0.16), 1e-4);
  EXPECT_TRUE(found.outputs[0].boxes);
  EXPECT_TRUE(found.of_boxes());
  EXPECT_EQ(found.outputs[0].decisions, 2);
  EXPECT_EQ(found.agreement(), 100) << "the other box of the first class takes its place";
}

}  // namespace
}  // namespace steelyard
