#include "steelyard/framework/train/constant_outputs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/framework/ops/losses/ctc_loss.h"

namespace steelyard::constant_outputs_test {
namespace {

// Texts of no to four characters with and without repeats.
Tensor some_texts() {
  return Tensor::from<std::int64_t>(
      {1, 2, 3, 4, 1, 1, 2, -1, 2, 2, 2, 2, 3, -1, -1, -1, -1, -1, -1, -1}, {5, 4});
}

// f64 [5, frames, 5] of log-probabilities.
Variable same_frames(std::int64_t frames, double blank) {
  Tensor logits = Tensor::empty({5, frames, 5}, DType::kF64);
  for (std::int64_t i = 0; i < logits.size(); ++i) {
    logits.data<double>()[i] = std::log(i % 5 == 0 ? blank : (1 - blank) / 4);
  }
  return Variable(logits);
}

TEST(ConstantOutputs, OfTextsAreThoseOfCtc) {
  for (const std::int64_t frames : {7, 9, 40}) {
    for (const double blank : {0.2, 0.05, 0.9}) {
      const double expected = ctc_loss(same_frames(frames, blank), some_texts()).value().item();
      EXPECT_NEAR(ctc_of_constant_frames(some_texts(), frames, 5, blank, false), expected,
                  1e-12 * expected);
    }
  }
}

TEST(ConstantOutputs, OfTextsThatDoNotFit) {
  EXPECT_TRUE(std::isinf(ctc_of_constant_frames(some_texts(), 6, 5, 0.2, false)));
  const CtcOptions options{.zero_infinity = true};
  EXPECT_NEAR(ctc_of_constant_frames(some_texts(), 6, 5, 0.2, true),
              ctc_loss(same_frames(6, 0.2), some_texts(), options).value().item(), 1e-12);
}

TEST(ConstantOutputs, OfTextsAreAllZeroOrHaveTheirOwnBlank) {
  const Dataset data{Tensor::zeros({5, 1}), some_texts(), 5};
  Loss loss{.type = Loss::Type::kCtc, .characters = 5, .frames = 40};
  const double zeros = ctc_loss(same_frames(40, 0.2), some_texts()).value().item();
  EXPECT_NEAR(loss_of_zero_outputs(loss, data), zeros, 1e-12 * zeros);
  // Forty frames for at most four characters: most of them are blank.
  const ConstantOutputs constant = constant_outputs(loss, data, data);
  EXPECT_EQ(constant.outputs, "frames that are all the same");
  EXPECT_LT(constant.loss, zeros / 3);
  for (const double blank : {0.8, 0.9, 0.95}) {
    EXPECT_LE(constant.loss, ctc_loss(same_frames(40, blank), some_texts()).value().item());
  }
  loss.frames = 6;
  EXPECT_EQ(constant_outputs(loss, data, data).loss, 0);  // infinite
  loss.frames = 0;
  EXPECT_EQ(constant_outputs(loss, data, data).loss, 0);  // not known
}

Dataset of_values(const std::vector<float>& values) {
  const auto rows = static_cast<std::int64_t>(values.size() / 2);
  return {Tensor::zeros({rows, 1}), Tensor::from(values, {rows, 2}), 0};
}

TEST(ConstantOutputs, OfValuesAreTheMeanOfTheTrainingTargets) {
  const Dataset train = of_values({9, 0, 11, 4});  // means 10 and 2
  const Dataset other = of_values({10, 3, 13, 2, 10, 2});
  const ConstantOutputs mean =
      constant_outputs({.type = Loss::Type::kMeanSquaredError}, train, other);
  EXPECT_EQ(mean.outputs, "outputs that are the mean of the targets");
  EXPECT_NEAR(mean.loss, (1.0 + 9.0) / 6, 1e-6);
  EXPECT_NEAR(constant_outputs({.type = Loss::Type::kHuber}, train, other).loss, (0.5 + 2.5) / 6,
              1e-6);
  const double cosine = constant_outputs({.type = Loss::Type::kCosine}, train, train).loss;
  const double norm = std::hypot(10, 2);
  EXPECT_NEAR(cosine, 1 - (90 / (9 * norm) + (110 + 8) / (std::hypot(11, 4) * norm)) / 2, 1e-6);
  // Targets around zero.
  const Dataset centred = of_values({-1, 2, 1, -2});
  const ConstantOutputs zeros =
      constant_outputs({.type = Loss::Type::kMeanSquaredError}, centred, centred);
  EXPECT_EQ(zeros.outputs, "outputs that are all zero");
  EXPECT_NEAR(zeros.loss, 2.5, 1e-6);
}

TEST(ConstantOutputs, OfOtherLossesAreAllZero) {
  Dataset classes{Tensor::zeros({2, 1}), Tensor::from<std::int64_t>({0, 1}, {2}), 3};
  EXPECT_NEAR(constant_outputs({}, classes, classes).loss, std::log(3.0), 1e-12);
  EXPECT_EQ(constant_outputs({}, classes, {}).loss, 0);
}

}  // namespace
}  // namespace steelyard::constant_outputs_test
