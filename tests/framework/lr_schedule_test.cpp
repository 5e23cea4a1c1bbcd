#include "steelyard/framework/train/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace steelyard {
namespace {

using Type = LrSchedule::Type;

TEST(LrSchedule, Constant) {
  const LrSchedule s{.type = Type::kConstant, .base_lr = 0.25};
  EXPECT_EQ(learning_rate(s, 0), 0.25);
  EXPECT_EQ(learning_rate(s, 1000000), 0.25);
}

TEST(LrSchedule, WarmupRisesLinearlyToTheBase) {
  const LrSchedule s{.type = Type::kConstant, .base_lr = 0.8, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate(s, 0), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(s, 3), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(s, 4), 0.8);
}

TEST(LrSchedule, Step) {
  const LrSchedule s{.type = Type::kStep, .base_lr = 1.0, .step_every_steps = 10, .gamma = 0.5};
  EXPECT_DOUBLE_EQ(learning_rate(s, 9), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(s, 10), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(s, 19), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(s, 35), 0.125);
}

TEST(LrSchedule, CosineValues) {
  const LrSchedule s{.type = Type::kCosine, .base_lr = 1.0, .total_steps = 100, .final_lr = 0.2};
  EXPECT_DOUBLE_EQ(learning_rate(s, 0), 1.0);
  EXPECT_NEAR(learning_rate(s, 50), 0.6, 1e-15);
  EXPECT_NEAR(learning_rate(s, 25), 0.2 + 0.8 * (2 + std::sqrt(2.0)) / 4, 1e-15);
  EXPECT_DOUBLE_EQ(learning_rate(s, 100), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(s, 5000), 0.2);
}

TEST(LrSchedule, CosineStartsAfterTheWarmupAndFalls) {
  const LrSchedule s{.type = Type::kCosine, .base_lr = 1.0, .warmup_steps = 10, .total_steps = 110};
  EXPECT_DOUBLE_EQ(learning_rate(s, 9), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(s, 10), 1.0);
  EXPECT_NEAR(learning_rate(s, 60), 0.5, 1e-15);
  for (int step = 11; step <= 110; ++step) {
    EXPECT_LT(learning_rate(s, step), learning_rate(s, step - 1));
  }
}

TEST(LrSchedule, Errors) {
  EXPECT_THROW(learning_rate({}, -1), std::invalid_argument);
  EXPECT_THROW(learning_rate({.type = Type::kStep}, 0), std::invalid_argument);
  EXPECT_THROW(learning_rate({.type = Type::kCosine}, 0), std::invalid_argument);
  EXPECT_THROW(learning_rate({.type = Type::kCosine, .warmup_steps = 5, .total_steps = 5}, 5),
               std::invalid_argument);
  EXPECT_THROW(learning_rate({.warmup_steps = -1}, 0), std::invalid_argument);
}

}  // namespace
}  // namespace steelyard
