#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "steelyard/framework/ops/losses/losses.h"
#include "tests/framework/softmax_of.h"
#include "tests/support/gradcheck.h"

namespace steelyard {
namespace {

using testing::gradcheck;
using testing::message_of;
using testing::random_leaf;
using testing::random_tensor;
using testing::softmax_of;
using testing::values;

Tensor labels(std::initializer_list<std::int64_t> list) {
  return Tensor::from<std::int64_t>(list, {static_cast<std::int64_t>(list.size())});
}

// By the definition: mean over rows of -sum_c target_c log softmax_c.
double reference(const Tensor& logits, const Tensor& targets, double smoothing) {
  const std::int64_t rows = logits.dim(0), classes = logits.dim(1);
  double loss = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto p = softmax_of(logits, r);
    for (std::int64_t c = 0; c < classes; ++c) {
      const double hot = targets.data<std::int64_t>()[r] == c ? 1.0 : 0.0;
      const double target = (1 - smoothing) * hot + smoothing / static_cast<double>(classes);
      loss -= target * std::log(p[static_cast<std::size_t>(c)]);
    }
  }
  return loss / static_cast<double>(rows);
}

TEST(CrossEntropy, MatchesTheDefinition) {
  const Tensor logits = random_tensor({4, 5}, 1);
  const Tensor targets = labels({0, 4, 2, 2});
  for (const double smoothing : {0.0, 0.1, 0.9}) {
    const Variable loss = cross_entropy(Variable(logits), targets, smoothing);
    EXPECT_EQ(loss.shape(), Shape{});
    EXPECT_NEAR(loss.value().item(), reference(logits, targets, smoothing), 1e-13);
  }
}

TEST(CrossEntropy, Gradients) {
  const Variable logits = random_leaf({4, 5}, 1);
  const Tensor targets = labels({0, 4, 2, 2});
  for (const double smoothing : {0.0, 0.1}) {
    EXPECT_TRUE(gradcheck([&] { return cross_entropy(logits, targets, smoothing); }, {logits}));
  }
}

TEST(CrossEntropy, EqualLogitsGiveTheLogarithmOfTheClasses) {
  const Variable logits(Tensor::full({2, 10}, 3.0), true);
  EXPECT_NEAR(cross_entropy(logits, labels({1, 9})).value().item(), std::log(10.0), 1e-6);
}

TEST(CrossEntropy, LargeLogitsStayFiniteAndNaNShows) {
  const Variable large(Tensor::from<float>({1e4f, -1e4f, 0}, {1, 3}), true);
  const Variable loss = cross_entropy(large, labels({1}));
  EXPECT_EQ(loss.value().item(), 2e4);
  loss.backward();
  EXPECT_THAT(values(large.grad()), ::testing::ElementsAre(1, -1, 0));
  const Variable bad(Tensor::full({1, 3}, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_TRUE(std::isnan(cross_entropy(bad, labels({1})).value().item()));
}

TEST(CrossEntropy, Errors) {
  const Variable logits(Tensor::zeros({2, 3}));
  EXPECT_EQ(message_of<std::out_of_range>([&] {
              cross_entropy(logits, labels({0, 3}));
            }),
            "[cross_entropy] expected targets in [0, 3), got 3 at index 1");
  EXPECT_EQ(message_of<std::out_of_range>([&] {
              cross_entropy(logits, labels({-1, 0}));
            }),
            "[cross_entropy] expected targets in [0, 3), got -1 at index 0");
  EXPECT_EQ(message_of<std::invalid_argument>([&] { cross_entropy(logits, labels({0})); }),
            "[cross_entropy] expected i64 targets [2], got i64 [1]");
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              cross_entropy(logits, labels({0, 1}), 1.0);
            }),
            "[cross_entropy] expected label_smoothing in [0, 1), got 1");
  const Tensor odds = Tensor::from<float>({0, 1, 0, 1.5, 0, 0}, {2, 3});
  EXPECT_EQ(message_of<std::invalid_argument>([&] { cross_entropy(logits, odds); }),
            "[cross_entropy] expected target probabilities in [0, 1], got 1.5 at index 3");
  EXPECT_EQ(message_of<std::invalid_argument>([&] { binary_cross_entropy(logits, odds); }),
            "[binary_cross_entropy] expected target probabilities in [0, 1], got 1.5 at index 3");
  EXPECT_THROW(cross_entropy(Variable(Tensor::zeros({0, 3})), labels({})), std::invalid_argument);
  EXPECT_THROW(cross_entropy(Variable(Tensor::zeros({3})), labels({0})), std::invalid_argument);
}

// By the definition: mean over rows of T^2 * sum_c p_c (log p_c - log q_c).
double divergence(const Tensor& logits, const Tensor& teacher, double temperature) {
  const std::int64_t rows = logits.dim(0);
  double sum = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto p = softmax_of(teacher, r, temperature), q = softmax_of(logits, r, temperature);
    for (std::size_t c = 0; c < p.size(); ++c) sum += p[c] * std::log(p[c] / q[c]);
  }
  return temperature * temperature * sum / static_cast<double>(rows);
}

TEST(DistillationLoss, MatchesTheDefinition) {
  const Tensor logits = random_tensor({4, 5}, 1), teacher = random_tensor({4, 5}, 2);
  for (const double temperature : {0.5, 1.0, 4.0}) {
    const double expected = divergence(logits, teacher, temperature);
    const Variable loss = distillation_loss(Variable(logits), teacher, temperature);
    EXPECT_EQ(loss.shape(), Shape{});
    EXPECT_NEAR(loss.value().item(), expected, 1e-13);
    const Variable narrow(logits.to(DType::kF32));
    EXPECT_NEAR(distillation_loss(narrow, teacher.to(DType::kF32), temperature).value().item(),
                expected, 1e-6);
  }
  EXPECT_EQ(distillation_loss(Variable(logits), logits).value().item(), 0.0);
  // A class that the teacher rules out adds nothing: p = (1/2, 1/2, 0), q = (1/4, 1/4, 1/2).
  const double none = -std::numeric_limits<double>::infinity();
  const Variable open(Tensor::from<double>({0, 0, std::log(2.0)}, {1, 3}));
  EXPECT_NEAR(distillation_loss(open, Tensor::from<double>({0, 0, none}, {1, 3})).value().item(),
              std::log(2.0), 1e-15);
}

TEST(DistillationLoss, Gradients) {
  const Variable logits = random_leaf({4, 5}, 1);
  const Tensor teacher = random_tensor({4, 5}, 2);
  for (const double temperature : {0.5, 1.0, 4.0}) {
    const auto loss = [&] { return distillation_loss(logits, teacher, temperature); };
    EXPECT_TRUE(gradcheck(loss, {logits}));
    const auto mixed = [&] {
      return mix_losses(cross_entropy(logits, labels({0, 4, 2, 2}), 0.1), loss(), 0.7);
    };
    EXPECT_TRUE(gradcheck(mixed, {logits}));
  }
}

TEST(DistillationLoss, LargeLogitsStayFiniteAndNaNShows) {
  const Variable large(Tensor::from<float>({1e4f, -1e4f, 0}, {1, 3}), true);
  const Variable loss = distillation_loss(large, Tensor::from<float>({0, 1e4f, 0}, {1, 3}), 2);
  EXPECT_EQ(loss.value().item(), 4 * 1e4);
  loss.backward();
  EXPECT_THAT(values(large.grad()), ::testing::ElementsAre(2, -2, 0));
  const Tensor bad = Tensor::full({1, 3}, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(std::isnan(distillation_loss(large, bad.to(DType::kF32)).value().item()));
}

TEST(DistillationLoss, Errors) {
  const Variable logits(Tensor::zeros({2, 3}));
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              distillation_loss(logits, Tensor::zeros({2, 4}));
            }),
            "[distillation_loss] expected a teacher's logits f32 [2, 3], got f32 [2, 4]");
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              distillation_loss(logits, Tensor::zeros({2, 3}), 0);
            }),
            "[distillation_loss] expected a temperature above 0, got 0");
  EXPECT_THROW(mix_losses(logits, logits, 0.5), std::invalid_argument);
}

TEST(MixLosses, Weighs) {
  const Variable a(Tensor::full(Shape{}, 2.0), true), b(Tensor::full(Shape{}, 10.0), true);
  const Variable mixed = mix_losses(a, b, 0.25);
  EXPECT_EQ(mixed.value().item(), 4.0);
  mixed.backward();
  EXPECT_EQ(a.grad().item(), 0.75);
  EXPECT_EQ(b.grad().item(), 0.25);
  EXPECT_EQ(message_of<std::invalid_argument>([&] { mix_losses(a, b, 1.5); }),
            "[mix_losses] expected weight in [0, 1], got 1.5");
}

TEST(MseLoss, ValueAndGradients) {
  const Variable x = random_leaf({3, 4}, 1);
  const Tensor target = random_tensor({3, 4}, 2);
  double expected = 0;
  for (std::size_t i = 0; i < 12; ++i) {
    const double d = values(x.value())[i] - values(target)[i];
    expected += d * d / 12;
  }
  EXPECT_NEAR(mse_loss(x, target).value().item(), expected, 1e-14);
  EXPECT_TRUE(gradcheck([&] { return mse_loss(x, target); }, {x}));
}

TEST(HuberLoss, ValueAndErrors) {
  const Tensor target = Tensor::zeros({1, 4});
  const Variable x(Tensor::from<float>({0.5F, -1, 3, -5}, {1, 4}));
  EXPECT_FLOAT_EQ(static_cast<float>(huber_loss(x, target).value().item()),
                  (0.125F + 0.5F + 2.5F + 4.5F) / 4);
  EXPECT_EQ(message_of<std::invalid_argument>([&] { huber_loss(x, target, 0); }),
            "[huber_loss] expected delta above 0, got 0");
  EXPECT_EQ(message_of<std::invalid_argument>([&] { huber_loss(x, Tensor::zeros({4})); }),
            "[huber_loss] expected a target f32 [1, 4], not empty, got f32 [4]");
}

TEST(MseLoss, Errors) {
  const Variable x(Tensor::zeros({2, 3}));
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              mse_loss(x, Tensor::zeros({3, 2}));
            }),
            "[mse_loss] expected a target f32 [2, 3], not empty, got f32 [3, 2]");
  EXPECT_THROW(mse_loss(x, Tensor::zeros({2, 3}, DType::kF64)), std::invalid_argument);
  EXPECT_THROW(mse_loss(Variable(Tensor::zeros({0})), Tensor::zeros({0})), std::invalid_argument);
}

}  // namespace
}  // namespace steelyard
