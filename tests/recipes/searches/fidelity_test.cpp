#include "steelyard/recipes/searches/fidelity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "steelyard/framework/train/metrics.h"
#include "steelyard/recipes/searches/whole_file.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<OutputSpan> kTwo{{"scores", 0, 3, 3}, {"values", 3, 2, 0}};

TEST(Fidelity, IsThatOfEachOutput) {
  const Tensor in_float = Tensor::from<float>({1, 3, 2, 10, 0,  //
                                               4, 1, 1, 0, 10},
                                              {2, 5});
  const Tensor quantized = Tensor::from<float>({1, 2, 3, 10, 1,  //
                                                4, 1, 1, 0, 10},
                                               {2, 5});
  const Fidelity found = fidelity(in_float, quantized, kTwo);
  ASSERT_EQ(found.outputs.size(), 2U);
  EXPECT_NEAR(found.outputs[0].sqnr_db, 10 * std::log10(32.0 / 2), 1e-12);
  // Noise of 2 and 0: their sum has a standard error of 2.
  EXPECT_NEAR(found.outputs[0].sure_db, 10 * std::log10(32.0 / 4), 1e-12);
  EXPECT_EQ(found.outputs[0].agreement, 50.0);
  EXPECT_EQ(found.outputs[0].decisions, 2);
  EXPECT_EQ(found.outputs[0].worst_sample, 0);
  EXPECT_NEAR(found.outputs[0].worst_sqnr_db, 10 * std::log10(14.0 / 2), 1e-12);
  EXPECT_NEAR(found.outputs[1].sqnr_db, 10 * std::log10(200.0), 1e-12);
  EXPECT_EQ(found.outputs[1].agreement, std::nullopt);
  EXPECT_EQ(found.sqnr_db(), found.outputs[0].sqnr_db);
  EXPECT_EQ(found.agreement(), 50.0);
}

// Such as numbers of a regression, of which one is always the largest.
TEST(Fidelity, OneClassForAllSamplesIsNoDecision) {
  const Tensor in_float = Tensor::from<float>({40, 1, 2, 0, 0, 50, 2, 1, 0, 0}, {2, 5});
  std::vector<OutputSpan> outputs = kTwo;
  EXPECT_EQ(fidelity(in_float, in_float, outputs).outputs[0].agreement, 100.0) << "of a Softmax";
  outputs[0].may_be_numbers = true;
  EXPECT_EQ(fidelity(in_float, in_float, outputs).outputs[0].agreement, std::nullopt);
}

TEST(Fidelity, HasLimits) {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5}, {1, 5});
  EXPECT_EQ(fidelity(x, x, kTwo).sqnr_db(), kMostDecibels);
  const Tensor broken =
      Tensor::from<float>({1, 2, std::numeric_limits<float>::quiet_NaN(), 4, 5}, {1, 5});
  EXPECT_EQ(fidelity(x, broken, kTwo).outputs[0].sqnr_db, -kMostDecibels);
  EXPECT_EQ(fidelity(x, broken, kTwo).outputs[1].sqnr_db, kMostDecibels);
  EXPECT_THROW(fidelity(x, Tensor::zeros({1, 4}), kTwo), std::invalid_argument);
}

TEST(FidelityGoal, IsOfDecisionsWhereOutputsDecide) {
  const FidelityGoal goal;
  EXPECT_TRUE(
      goal.reached({{{.sure_db = 5, .agreement = 99.5, .decisions = 200}, {.sure_db = 25}}}));
  EXPECT_FALSE(
      goal.reached({{{.sure_db = 50, .agreement = 98.5, .decisions = 200}, {.sure_db = 25}}}));
  EXPECT_FALSE(
      goal.reached({{{.sure_db = 5, .agreement = 99.5, .decisions = 200}, {.sure_db = 24.9}}}));
  EXPECT_FALSE(goal.reached({{{.sure_db = 24.9, .agreement = 100, .decisions = 199}}}));
  EXPECT_TRUE(goal.reached({{{.sure_db = 25, .agreement = 90, .decisions = 10}}}));
  EXPECT_TRUE(goal.reached({{{.sure_db = 5, .agreement = 97, .decisions = 67, .boxes = true}}}));
  EXPECT_FALSE(goal.reached({{{.sure_db = 5, .agreement = 96.9, .decisions = 67, .boxes = true}}}));
}

TEST(FidelityGoal, NumbersMustBeNearToo) {
  const FidelityGoal goal;
  OutputFidelity output{
      .name = "prices", .sure_db = 12, .agreement = 100, .may_be_numbers = true, .decisions = 200};
  EXPECT_FALSE(goal.reached({{output}})) << "the largest of three prices may stay the largest";
  EXPECT_THAT(goal.why_by_numbers(output), HasSubstr("output prices: may be scores or numbers"));
  EXPECT_TRUE(FidelityGoal{.sqnr_db = 0}.reached({{output}}));
  output.sure_db = 25;
  EXPECT_TRUE(goal.reached({{output}}));
  EXPECT_EQ(goal.why_by_numbers(output), "");
  output.agreement = 98;
  EXPECT_FALSE(goal.reached({{output}}));
  output.decisions = 50;
  EXPECT_TRUE(goal.reached({{output}})) << "too few to tell";
  EXPECT_THAT(goal.why_by_numbers(output), HasSubstr("50 decisions are too few to tell 99 %"));
}

TEST(WholeFidelity, IsOfOutputsOfOneSize) {
  using deploy::OnnxValues;
  const auto sample = [](double value, double number, std::vector<double> found) {
    return std::vector<OnnxValues>{
        {false, {value, 2}}, {true, {number, 5}}, {true, std::move(found)}, {false, {}}};
  };
  const WholeOutputs in_float{sample(1, 3, {1}), sample(1, 4, {1, 2})};
  const WholeOutputs quantized{sample(1, 3, {1}), sample(2, 7, {1, 2})};
  const WholeFidelity found =
      whole_fidelity({"sums", "classes", "selected", "text"}, in_float, quantized);
  EXPECT_THAT(found.others, ElementsAre("selected", "text"));
  ASSERT_EQ(found.fidelity.outputs.size(), 2U);
  EXPECT_NEAR(found.fidelity.outputs[0].sqnr_db, 10 * std::log10(10.0), 1e-12);
  EXPECT_EQ(found.fidelity.outputs[0].agreement, std::nullopt);
  EXPECT_EQ(found.fidelity.outputs[1].agreement, 75.0);
  EXPECT_EQ(found.fidelity.outputs[1].decisions, 4);
  EXPECT_EQ(found.fidelity.outputs[1].worst_sample, 1);
  EXPECT_NEAR(found.fidelity.outputs[1].sqnr_db, 10 * std::log10(4.0), 1e-12);
}

}  // namespace
}  // namespace steelyard
