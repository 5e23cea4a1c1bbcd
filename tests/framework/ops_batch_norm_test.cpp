#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "steelyard/framework/ops/reductions/batch_norm.h"
#include "tests/support/gradcheck.h"

namespace steelyard {
namespace {

using testing::all_close;
using testing::gradcheck;
using testing::leaf;
using testing::message_of;
using testing::random_leaf;
using testing::random_tensor;
using testing::values;

constexpr std::int64_t kChannels = 3;

BatchNormState fresh_state(bool batch_statistics, DType dtype = DType::kF64) {
  return {.running_mean = random_tensor({kChannels}, 8, dtype),
          .running_var = Tensor::full({kChannels}, 0.7, dtype),
          .eps = 1e-3,
          .momentum = 0.2,
          .batch_statistics = batch_statistics};
}

struct Moments {
  double mean = 0;
  double variance = 0;  // biased
};

Moments moments_of(const Tensor& x, std::int64_t channel) {
  const std::int64_t rows = x.size() / kChannels;
  Moments m;
  for (std::int64_t r = 0; r < rows; ++r) m.mean += x.data<double>()[r * kChannels + channel];
  m.mean /= static_cast<double>(rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    const double d = x.data<double>()[r * kChannels + channel] - m.mean;
    m.variance += d * d;
  }
  m.variance /= static_cast<double>(rows);
  return m;
}

TEST(BatchNorm, TrainingNormalizesWithTheBatch) {
  const Tensor x = random_tensor({2, 3, 4, kChannels}, 1);
  const Tensor gamma = random_tensor({kChannels}, 2), beta = random_tensor({kChannels}, 3);
  const Tensor y =
      batch_norm(Variable(x), Variable(gamma), Variable(beta), fresh_state(true)).value();
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const std::int64_t c = i % kChannels;
    const Moments m = moments_of(x, c);
    const double unit = (x.data<double>()[i] - m.mean) / std::sqrt(m.variance + 1e-3);
    EXPECT_NEAR(y.data<double>()[i], unit * gamma.data<double>()[c] + beta.data<double>()[c],
                1e-12);
  }
}

TEST(BatchNorm, TrainingUpdatesRunningStatisticsAsPyTorchDoes) {
  const Tensor x = random_tensor({2, 3, 4, kChannels}, 1);
  const Variable ones(Tensor::full({kChannels}, 1.0, DType::kF64));
  const BatchNormState state = fresh_state(true);
  const auto mean = values(state.running_mean);
  const auto variance = values(state.running_var);
  batch_norm(Variable(x), ones, ones, state);
  for (std::size_t c = 0; c < kChannels; ++c) {
    const Moments m = moments_of(x, static_cast<std::int64_t>(c));
    EXPECT_NEAR(values(state.running_mean)[c], 0.8 * mean[c] + 0.2 * m.mean, 1e-14);
    EXPECT_NEAR(values(state.running_var)[c], 0.8 * variance[c] + 0.2 * m.variance * 24 / 23,
                1e-14);
  }
}

TEST(BatchNorm, EvaluationUsesAndKeepsTheRunningStatistics) {
  const Tensor x = random_tensor({5, kChannels}, 1);
  const Variable ones(Tensor::full({kChannels}, 1.0, DType::kF64));
  const BatchNormState state = fresh_state(false);
  const auto mean = values(state.running_mean);
  const Tensor y = batch_norm(Variable(x), ones, ones, state).value();
  for (std::size_t i = 0; i < 15; ++i) {
    EXPECT_NEAR(values(y)[i], (values(x)[i] - mean[i % 3]) / std::sqrt(0.701) + 1.0, 1e-12);
  }
  EXPECT_EQ(values(state.running_mean), mean);
}

TEST(BatchNorm, Gradients) {
  for (const bool batch_statistics : {true, false}) {
    for (const Shape& shape : {Shape{2, 3, 2, kChannels}, Shape{4, kChannels}}) {
      const Variable x = random_leaf(shape, 1);
      const Variable gamma = random_leaf({kChannels}, 2), beta = random_leaf({kChannels}, 3);
      const BatchNormState state = fresh_state(batch_statistics);
      EXPECT_TRUE(gradcheck([&] { return batch_norm(x, gamma, beta, state); }, {x, gamma, beta}));
    }
  }
}

TEST(BatchNorm, GradientsOfAZeroGammaAreFinite) {
  const Variable x = random_leaf({4, kChannels}, 1);
  const Variable gamma = leaf(Tensor::zeros({kChannels}, DType::kF64));
  const Variable beta = random_leaf({kChannels}, 3);
  const BatchNormState state = fresh_state(true);
  EXPECT_TRUE(gradcheck([&] { return batch_norm(x, gamma, beta, state); }, {x, gamma, beta}));
}

TEST(BatchNorm, AConstantChannelGivesBeta) {
  const Variable x = leaf(Tensor::full({4, kChannels}, 1000.0, DType::kF32));
  const Variable gamma(Tensor::full({kChannels}, 2.0)), beta(Tensor::full({kChannels}, 0.5));
  const Variable y = batch_norm(x, gamma, beta, fresh_state(true, DType::kF32));
  y.backward(random_tensor(y.shape(), 4, DType::kF32));
  for (const double value : values(y.value())) EXPECT_EQ(value, 0.5);
  for (const double value : values(x.grad())) EXPECT_TRUE(std::isfinite(value));
}

// The statistics a backward uses are those of its forward, whatever happens in between.
TEST(BatchNorm, BackwardIgnoresLaterChangesOfRunningStatistics) {
  const Variable x = random_leaf({4, kChannels}, 1);
  const Variable gamma = random_leaf({kChannels}, 2), beta = random_leaf({kChannels}, 3);
  const BatchNormState state = fresh_state(false);
  const Variable y = batch_norm(x, gamma, beta, state);
  const Tensor r = random_tensor(y.shape(), 4);
  y.backward(r);
  const auto first = values(gamma.grad());
  state.running_mean.fill(100.0);
  state.running_var.fill(100.0);
  gamma.node()->grad = Tensor();
  y.backward(r);
  EXPECT_EQ(values(gamma.grad()), first);
}

TEST(BatchNorm, RunningStatisticsMayBeNarrowerThanTheInput) {
  const Variable x = random_leaf({4, kChannels}, 1);
  const Variable gamma = random_leaf({kChannels}, 2), beta = random_leaf({kChannels}, 3);
  const Tensor wide = batch_norm(x, gamma, beta, fresh_state(false)).value();
  const Tensor narrow = batch_norm(x, gamma, beta, fresh_state(false, DType::kF32)).value();
  EXPECT_TRUE(all_close(narrow, wide, 1e-6, 1e-6));
}

TEST(BatchNorm, F32AgreesWithF64) {
  const auto run = [](DType dtype) {
    const Variable x(random_tensor({2, 4, 4, kChannels}, 1, dtype), true);
    const Variable gamma(random_tensor({kChannels}, 2, dtype), true);
    const Variable beta(random_tensor({kChannels}, 3, dtype), true);
    const BatchNormState state = fresh_state(true, dtype);
    const Variable y = batch_norm(x, gamma, beta, state);
    y.backward(random_tensor(y.shape(), 4, dtype));
    return std::vector<Tensor>{y.value(),   x.grad(),           gamma.grad(),
                               beta.grad(), state.running_mean, state.running_var};
  };
  const auto narrow = run(DType::kF32);
  const auto wide = run(DType::kF64);
  for (std::size_t i = 0; i < wide.size(); ++i) {
    EXPECT_TRUE(all_close(narrow[i], wide[i], 1e-4, 1e-5)) << "tensor " << i;
  }
}

TEST(BatchNormErrors, NameTheArgument) {
  const Variable three(Tensor::zeros({3}, DType::kF64)), two(Tensor::zeros({2}, DType::kF64));
  const Variable x(Tensor::zeros({1, 3}, DType::kF64));
  EXPECT_EQ(
      message_of<std::invalid_argument>([&] { batch_norm(x, three, three, fresh_state(true)); }),
      "[batch_norm] expected more than one value per channel for batch statistics, got "
      "[1, 3]");
  EXPECT_EQ(
      message_of<std::invalid_argument>([&] { batch_norm(x, two, three, fresh_state(false)); }),
      "[batch_norm] expected gamma [3], got [2]");
  EXPECT_EQ(message_of<std::invalid_argument>([&] { batch_norm(x, three, three, {}); }),
            "[batch_norm] expected running_mean [3], got []");
  EXPECT_EQ(message_of<std::invalid_argument>(
                [&] { batch_norm(three, three, three, fresh_state(false)); }),
            "[batch_norm] expected input [..., C] of rank 2 or more, got [3]");
}

}  // namespace
}  // namespace steelyard
