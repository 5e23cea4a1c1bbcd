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

TEST(DetectionHead, IsOfBoxesAndScoresOfASigmoid) {
  const std::vector<std::int32_t> values{0, 0, 0, 0, 1, 1};
  EXPECT_EQ(detection_head({6, 10}, of_rows(values, 10), kTypes),
            (DetectionHead{.anchors = 10, .classes = 2}));
  EXPECT_EQ(detection_head({1, 6, 10}, of_rows(values, 10), kTypes)->anchors, 10);
  std::vector<std::int32_t> rows;
  for (int anchor = 0; anchor < 3; ++anchor) rows.insert(rows.end(), values.begin(), values.end());
  EXPECT_EQ(detection_head({3, 6}, rows, kTypes),
            (DetectionHead{.anchors = 3, .classes = 1, .row_of_anchor = true, .objectness = true}));
}

TEST(DetectionHead, IsNothingElse) {
  EXPECT_EQ(detection_head({6, 10}, of_rows({0, 0, 0, 1, 1, 1}, 10), kTypes), std::nullopt);
  EXPECT_EQ(detection_head({6, 10}, of_rows({0, 0, 0, 0, 1, 0}, 10), kTypes), std::nullopt);
  EXPECT_EQ(detection_head({6, 10}, of_rows({2, 2, 2, 2, 1, 1}, 10), kTypes), std::nullopt)
      << "places that a layer gives are not yet boxes";
  EXPECT_EQ(detection_head({4, 10}, of_rows({0, 0, 0, 0}, 10), kTypes), std::nullopt);
  EXPECT_EQ(detection_head({6, 2, 5}, of_rows({0, 0, 0, 0, 1, 1}, 10), kTypes), std::nullopt);
}

constexpr DetectionHead kHead{.anchors = 3, .classes = 2};
// Two boxes of 10 x 10 far from each other; the third is the first again, a little worse.
const std::vector<float> kBoxes{10,   50,   11,    // x
                                10,   50,   10,    // y
                                10,   10,   10,    // width
                                10,   10,   10,    // height
                                0.9F, 0.1F, 0.8F,  // of the first class
                                0.0F, 0.6F, 0.1F};

TEST(CompareBoxes, CountsThoseThatOverlapByHalf) {
  const BoxAgreement same = compare_boxes(kHead, kBoxes, kBoxes);
  EXPECT_EQ(same.in_float, 2) << "the third repeats the first";
  EXPECT_EQ(same.percent(), 100);
  std::vector<float> moved = kBoxes;
  moved[0] += 3;  // 70 of 130 are shared
  moved[2] += 3;
  EXPECT_EQ(compare_boxes(kHead, kBoxes, moved).matched, 2);
  moved[0] += 1;  // 60 of 140
  moved[2] += 3;
  EXPECT_EQ(compare_boxes(kHead, kBoxes, moved).percent(), 50);
}

TEST(CompareBoxes, OfAnotherClassOrMissingDiffer) {
  std::vector<float> other = kBoxes;
  std::swap(other[13], other[16]);  // the class of the second
  EXPECT_EQ(compare_boxes(kHead, kBoxes, other).percent(), 50);
  other = kBoxes;
  other[16] = 0.2F;  // below .25
  const BoxAgreement found = compare_boxes(kHead, kBoxes, other);
  EXPECT_EQ(found.quantized, 1);
  EXPECT_NEAR(found.percent().value(), 100.0 * 2 / 3, 1e-12);
  EXPECT_EQ(BoxAgreement().percent(), std::nullopt);
}

TEST(CompareBoxes, ReadsCornersAndRowsWithObjectness) {
  DetectionHead head = kHead;
  EXPECT_FALSE(has_corners(head, kBoxes));
  head.corners = true;
  const std::vector<float> corners{5,    45,   6,     //
                                   5,    45,   5,     //
                                   15,   55,   16,    //
                                   15,   55,   15,    //
                                   0.9F, 0.1F, 0.8F,  //
                                   0.0F, 0.6F, 0.1F};
  EXPECT_TRUE(has_corners(head, corners));
  EXPECT_EQ(compare_boxes(head, corners, corners).in_float, 2);
  const DetectionHead rows{.anchors = 2, .classes = 1, .row_of_anchor = true, .objectness = true};
  const std::vector<float> two{10, 10, 4, 4, 0.9F, 0.5F, 40, 40, 4, 4, 0.4F, 0.5F};
  EXPECT_EQ(compare_boxes(rows, two, two).in_float, 1) << ".4 x .5 is below .25";
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
