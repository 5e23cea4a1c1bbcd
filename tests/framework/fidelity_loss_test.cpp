// The loss of outputs that are compared with those of a float model, and its metric.
#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/train/loss.h"
#include "steelyard/framework/train/metrics.h"
#include "tests/framework/metric_values.h"
#include "tests/framework/softmax_of.h"
#include "tests/support/gradcheck.h"

namespace steelyard {
namespace {

using testing::gradcheck;
using testing::random_leaf;
using testing::random_tensor;
using testing::softmax_of;

Loss fidelity_in(OutputUnits units) {
  return {.type = Loss::Type::kFidelity, .units = std::move(units)};
}

// Two outputs of one and three values whose powers are 2^20 apart.
TEST(FidelityLoss, CountsEachOutputByItsOwnPower) {
  Tensor targets = random_tensor({6, 4}, 1);
  for (std::int64_t i = 0; i < 6; ++i) targets.data<double>()[4 * i] *= 1024;
  double first = 0, rest = 0;  // mean powers
  for (std::int64_t i = 0; i < 24; ++i) {
    const double power = targets.data<double>()[i] * targets.data<double>()[i] / 6;
    (i % 4 == 0 ? first : rest) += power;
  }
  // Of 4 values in 2 outputs.
  const Tensor scales = Tensor::from<double>(
      {std::sqrt(2 / first), std::sqrt(2 / rest), std::sqrt(2 / rest), std::sqrt(2 / rest)}, {4});
  const Loss loss = fidelity_in({.scales = scales});
  const Variable zeros(Tensor::zeros({6, 4}, DType::kF64));
  EXPECT_NEAR(compute_loss(loss, zeros, targets).value().item(), 1, 1e-14);

  const Variable outputs = random_leaf({6, 4}, 2);
  double expected = 0;
  for (std::int64_t i = 0; i < 24; ++i) {
    const double d = outputs.value().data<double>()[i] - targets.data<double>()[i];
    expected += d * d / 6 / (i % 4 == 0 ? first : rest) / 2;
  }
  EXPECT_NEAR(compute_loss(loss, outputs, targets).value().item(), expected, 1e-12 * expected);
  EXPECT_TRUE(gradcheck([&] { return compute_loss(loss, outputs, targets); }, {outputs}));
}

TEST(FidelityLoss, OfLogitsIsTheDivergenceOfTheirChances) {
  const Tensor targets = random_tensor({3, 2, 4}, 3);  // two decisions a sample
  const Variable outputs = random_leaf({3, 2, 4}, 4);
  const auto divergence = [&](const Tensor& of) {
    double sum = 0;
    for (std::int64_t row = 0; row < 6; ++row) {
      const auto p = softmax_of(targets.reshape({6, 4}), row);
      const auto q = softmax_of(of.reshape({6, 4}), row);
      for (std::size_t c = 0; c < 4; ++c) sum += p[c] * std::log(p[c] / q[c]) / 6;
    }
    return sum;
  };
  const Tensor zeros = Tensor::zeros({3, 2, 4}, DType::kF64);
  const Loss loss = fidelity_in({.logits = true, .divergence = divergence(zeros)});
  EXPECT_NEAR(compute_loss(loss, Variable(zeros), targets).value().item(), 1, 1e-12);
  EXPECT_NEAR(compute_loss(loss, outputs, targets).value().item(),
              divergence(outputs.value()) / divergence(zeros), 1e-12);
  EXPECT_TRUE(gradcheck([&] { return compute_loss(loss, outputs, targets); }, {outputs}));
}

TEST(Decibels, HaveLimits) {
  EXPECT_DOUBLE_EQ(decibels(1000, 10), 20);
  EXPECT_EQ(decibels(1, 0), kMostDecibels);
  EXPECT_EQ(decibels(0, 1), -kMostDecibels);
}

}  // namespace
}  // namespace steelyard
