// The operations that batch-norm folding is made of, in float64 and off every quantizer.
#include "steelyard/qat/forms/norm_after_fold.h"

#include <gtest/gtest.h>

#include "steelyard/framework/ops/products/conv2d.h"
#include "steelyard/qat/forms/fold.h"
#include "tests/support/gradcheck.h"

namespace steelyard::qat {
namespace {

using testing::all_close;
using testing::gradcheck;
using testing::leaf;
using testing::random_leaf;
using testing::random_tensor;
using testing::values;

constexpr std::int64_t kChannels = 3;

// Fresh running statistics: an operation with batch statistics moves them.
BatchNormState fresh_state(bool batch_statistics) {
  return {.running_mean = random_tensor({kChannels}, 8),
          .running_var = Tensor::from({0.3, 1.1, 2.5}, {kChannels}),
          .eps = 1e-3,
          .momentum = 0.2,
          .batch_statistics = batch_statistics};
}

TEST(FoldWeight, Gradients) {
  const Variable weight = random_leaf({kChannels, 2, 3, 3}, 1), gamma = random_leaf({kChannels}, 2);
  EXPECT_TRUE(
      gradcheck([&] { return fold_weight(weight, gamma, fresh_state(false)); }, {weight, gamma}));
}

TEST(FoldBias, Gradients) {
  const Variable gamma = random_leaf({kChannels}, 2), beta = random_leaf({kChannels}, 3);
  const Variable bias = random_leaf({kChannels}, 4);
  EXPECT_TRUE(gradcheck([&] { return fold_bias(bias, gamma, beta, fresh_state(false)); },
                        {bias, gamma, beta}));
  EXPECT_TRUE(
      gradcheck([&] { return fold_bias({}, gamma, beta, fresh_state(false)); }, {gamma, beta}));
}

TEST(FoldBatchNorm, IsTheBatchNormOfTheConvolution) {
  const Variable x = random_leaf({2, 4, 4, 2}, 1), weight = random_leaf({kChannels, 2, 3, 3}, 2);
  const Variable gamma = random_leaf({kChannels}, 3), beta = random_leaf({kChannels}, 4);
  const Variable bias = random_leaf({kChannels}, 5);
  const BatchNormState state = fresh_state(false);
  const Variable folded = conv2d(x, fold_weight(weight, gamma, state),
                                 fold_bias(bias, gamma, beta, state), {.padding = {1, 1}});
  const Variable expected =
      batch_norm(conv2d(x, weight, bias, {.padding = {1, 1}}), gamma, beta, state);
  EXPECT_TRUE(all_close(folded.value(), expected.value(), 1e-12, 1e-12));
}

TEST(CorrectedBatchNorm, Gradients) {
  const Variable product = random_leaf({2, 2, 3, kChannels}, 1);
  const Variable raw = random_leaf({2, 2, 3, kChannels}, 2);
  const Variable gamma = random_leaf({kChannels}, 3), beta = random_leaf({kChannels}, 4);
  EXPECT_TRUE(gradcheck(
      [&] { return corrected_batch_norm(product, raw, gamma, beta, {}, fresh_state(true)); },
      {product, raw, gamma, beta}));
}

TEST(RecoveredBatchNorm, Gradients) {
  const Variable product = random_leaf({2, 2, 3, kChannels}, 1);
  const Variable gamma = random_leaf({kChannels}, 3), beta = random_leaf({kChannels}, 4);
  EXPECT_TRUE(gradcheck(
      [&] {
        return recovered_batch_norm(product, Tensor::from({0.5, -2.0, 0.01}, {kChannels}), gamma,
                                    beta, {}, fresh_state(true));
      },
      {product, gamma, beta}));
}

// conv, batch norm, and the same with folded weights: one function, and one set of gradients.
struct Twins {
  Variable x = random_leaf({2, 4, 4, 2}, 1);
  Variable weight = random_leaf({kChannels, 2, 3, 3}, 2);
  Variable gamma = random_leaf({kChannels}, 3);
  Variable beta = random_leaf({kChannels}, 4);
  Tensor bias = random_tensor({kChannels}, 5);
  BatchNormState state = fresh_state(true);

  Variable product(const Variable& by) const { return conv2d(x, by, {}, {.padding = {1, 1}}); }
  std::vector<Tensor> results(const Variable& y) {
    y.backward(random_tensor(y.shape(), 9));
    return {y.value(),   x.grad(),           weight.grad(),    gamma.grad(),
            beta.grad(), state.running_mean, state.running_var};
  }
};

void expect_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(all_close(a[i], b[i], 1e-9, 1e-11)) << "tensor " << i;
  }
}

std::vector<Tensor> plain_results() {
  Twins t;
  const Variable raw = conv2d(t.x, t.weight, Variable(t.bias), {.padding = {1, 1}});
  return t.results(batch_norm(raw, t.gamma, t.beta, t.state));
}

TEST(CorrectedBatchNorm, BehindFoldedWeightsIsPlainBatchNorm) {
  Twins t;
  const Variable product = t.product(fold_weight(t.weight, t.gamma, t.state));
  expect_same(t.results(corrected_batch_norm(product, t.product(t.weight), t.gamma, t.beta, t.bias,
                                             t.state)),
              plain_results());
}

TEST(RecoveredBatchNorm, BehindFoldedWeightsIsPlainBatchNorm) {
  Twins t;
  const Variable factor_gamma(Tensor::from({0.7, -1.3, 1e-3}, {kChannels}));
  const Tensor factor = running_std(t.state);
  for (std::int64_t c = 0; c < kChannels; ++c) {
    double& of_channel = factor.data<double>()[c];
    of_channel = factor_gamma.value().data<double>()[c] / of_channel;
  }
  const Variable product = t.product(fold_weight(t.weight, factor_gamma, t.state));
  expect_same(t.results(recovered_batch_norm(product, factor, t.gamma, t.beta, t.bias, t.state)),
              plain_results());
}

TEST(NormAfterFold, ErrorsNameTheArgument) {
  const Variable x = leaf(Tensor::zeros({1, kChannels}, DType::kF64));
  const Variable ones = leaf(Tensor::full({kChannels}, 1.0, DType::kF64));
  EXPECT_EQ(testing::message_of<std::invalid_argument>(
                [&] { recovered_batch_norm(x, ones.value(), ones, ones, {}, fresh_state(true)); }),
            "[recovered_batch_norm] expected more than one value per channel for batch "
            "statistics, got [1, 3]");
  const Variable two = leaf(Tensor::zeros({2, kChannels}, DType::kF64));
  EXPECT_EQ(testing::message_of<std::invalid_argument>(
                [&] { corrected_batch_norm(two, x, ones, ones, {}, fresh_state(true)); }),
            "[corrected_batch_norm] expected equal shapes, got [2, 3] and [1, 3]");
}

}  // namespace
}  // namespace steelyard::qat
