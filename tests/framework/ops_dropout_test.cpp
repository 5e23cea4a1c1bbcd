#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "steelyard/framework/ops/elementwise/dropout.h"
#include "steelyard/kernels/backend.h"
#include "tests/support/gradcheck.h"

namespace steelyard {
namespace {

using testing::gradcheck;
using testing::leaf;
using testing::random_leaf;
using testing::values;

Tensor dropped_ones(std::int64_t n, double p, Rng& rng) {
  return dropout(Variable(Tensor::full({n}, 1.0)), p, rng).value();
}

TEST(Dropout, DropsTheRightShareAndScalesTheRest) {
  constexpr std::int64_t kN = 100000;
  for (const double p : {0.1, 0.5, 0.8}) {
    Rng rng(1);
    std::int64_t zeros = 0, neighbours = 0;
    double previous = 1;
    for (const double value : values(dropped_ones(kN, p, rng))) {
      if (value != 0) {
        EXPECT_FLOAT_EQ(static_cast<float>(value), static_cast<float>(1 / (1 - p)));
      }
      zeros += value == 0 ? 1 : 0;
      neighbours += value == 0 && previous == 0 ? 1 : 0;
      previous = value;
    }
    EXPECT_NEAR(static_cast<double>(zeros) / kN, p, 5 * std::sqrt(p * (1 - p) / kN));
    EXPECT_NEAR(static_cast<double>(neighbours) / kN, p * p, 0.01);
  }
}

TEST(Dropout, DependsOnlyOnTheGeneratorsState) {
  Rng a(3, 4), b(3, 4), c(3, 5);
  const auto first = values(dropped_ones(1003, 0.5, a));
  EXPECT_EQ(first, values(dropped_ones(1003, 0.5, b)));
  EXPECT_NE(first, values(dropped_ones(1003, 0.5, a)));  // the generator moved on
  EXPECT_NE(first, values(dropped_ones(1003, 0.5, c)));
  EXPECT_EQ(b.state().position, 1008u);  // one word per element, in whole groups of eight
}

TEST(Dropout, DoesNotDependOnTheNumberOfThreads) {
  const int threads = kernels::num_threads();
  Rng a(3), b(3);
  kernels::set_num_threads(1);
  const auto alone = values(dropped_ones(5000, 0.3, a));
  kernels::set_num_threads(3);
  EXPECT_EQ(values(dropped_ones(5000, 0.3, b)), alone);
  kernels::set_num_threads(threads);
}

TEST(Dropout, GradientsFollowTheMask) {
  const Variable x = random_leaf({3, 7}, 1);
  EXPECT_TRUE(gradcheck(
      [&] {
        Rng rng(5);
        return dropout(x, 0.4, rng);
      },
      {x}));
}

TEST(Dropout, ZeroProbabilityIsTheSameVariableAndDrawsNothing) {
  Rng rng(1);
  const Variable x = random_leaf({4}, 1);
  EXPECT_EQ(dropout(x, 0.0, rng).node(), x.node());
  EXPECT_EQ(rng.state().position, 0u);
}

TEST(Dropout, KeepsOneBitPerElement) {
  Rng rng(1);
  EXPECT_EQ(saved_bytes(dropout(leaf(Tensor::zeros({100})), 0.5, rng), {}), 13);
}

// The shares of units that fall, and whether each falls as a whole.
TEST(Dropout, WholeChannelsOrSamplesFallTogether) {
  const Shape shape{40, 3, 5, 24};
  for (const DropoutUnit unit : {DropoutUnit::kChannel, DropoutUnit::kSample}) {
    Rng rng(4);
    const auto y = values(dropout(Variable(Tensor::full(shape, 1.0)), {0.25, unit}, rng).value());
    const bool of_channels = unit == DropoutUnit::kChannel;
    std::vector<double> units(of_channels ? 40 * 24 : 40, -1);
    for (std::size_t i = 0; i < y.size(); ++i) {
      double& of_unit = units[of_channels ? i / 360 * 24 + i % 24 : i / 360];
      if (of_unit < 0) of_unit = y[i];
      ASSERT_EQ(of_unit, y[i]) << i;
    }
    const auto n = static_cast<double>(units.size());
    const auto fallen = static_cast<double>(std::count(units.begin(), units.end(), 0.0));
    EXPECT_NEAR(fallen / n, 0.25, 3 * std::sqrt(0.25 * 0.75 / n)) << word_of(unit);
    EXPECT_GT(fallen, 0);
  }
}

TEST(Dropout, GradientsFollowTheMaskOfUnits) {
  const Variable x = random_leaf({3, 7, 5}, 1);
  for (const DropoutUnit unit : {DropoutUnit::kChannel, DropoutUnit::kSample}) {
    EXPECT_TRUE(gradcheck(
        [&] {
          Rng rng(5);
          return dropout(x, {0.4, unit}, rng);
        },
        {x}));
  }
}

TEST(Dropout, Errors) {
  Rng rng(1);
  const Variable x = random_leaf({4}, 1);
  EXPECT_THROW(dropout(x, 1.0, rng), std::invalid_argument);
  EXPECT_THROW(dropout(x, {0.5, DropoutUnit::kChannel}, rng), std::invalid_argument);
  EXPECT_THROW(dropout(x, -0.1, rng), std::invalid_argument);
  EXPECT_THROW(dropout(x, std::nan(""), rng), std::invalid_argument);
  EXPECT_THROW(dropout_mask({-3}, {0.5}, rng), std::invalid_argument);
  const Tensor mask = dropout_mask({100}, {0.5}, rng);
  EXPECT_THROW(apply_dropout(Tensor::zeros({105}), mask, 0.5), std::invalid_argument);
  EXPECT_THROW(apply_dropout(Tensor::zeros({100}), mask, 1), std::invalid_argument);
}

}  // namespace
}  // namespace steelyard
