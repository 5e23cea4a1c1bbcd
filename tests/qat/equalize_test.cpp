#include "steelyard/qat/equalize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "steelyard/layers/builders.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

void randomize(const Tensor& values, std::uint64_t seed, float lo, float hi) {
  const Tensor noise = testing::random_tensor(values.shape(), seed, DType::kF32);
  const auto from = noise.span<float>();
  const auto to = values.span<float>();
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = lo + (hi - lo) * (0.5F + 0.5F * std::tanh(from[i]));
  }
}

ModulePtr<BatchNorm2d> norm(std::int64_t channels, std::uint64_t seed) {
  auto layer = batch_norm2d(channels);
  randomize(layer->weight().value(), seed, -0.1F, 3);
  randomize(layer->bias().value(), seed + 1, -1, 1);
  randomize(layer->running_mean(), seed + 2, -1, 1);
  randomize(layer->running_var(), seed + 3, 0.1F, 4);
  return layer;
}

Tensor output_of(Module& model, const Tensor& x) {
  const NoGradGuard no_grad;
  ForwardContext evaluation;
  return model.forward(Variable(x), evaluation).value().clone();
}

// Convolutions with norms, a depthwise one, one in groups without a norm, and a linear layer.
TEST(Equalize, TheNetworkComputesTheSameAndRangesAreEqual) {
  Rng rng(1);
  const auto stem = conv2d(3, 8, 3, rng, {.padding = {1, 1}, .bias = false});
  const auto depthwise = conv2d(8, 8, 3, rng, {.padding = {1, 1}, .groups = 8, .bias = false});
  const auto grouped = conv2d(8, 12, 1, rng, {.groups = 4});
  const auto fc = linear(12 * 9, 5, rng);
  const auto stem_norm = norm(8, 10), depthwise_norm = norm(8, 20);
  const auto model = sequential({{"stem", stem},
                                 {"bn1", stem_norm},
                                 {"relu1", relu()},
                                 {"depthwise", depthwise},
                                 {"bn2", depthwise_norm},
                                 {"relu2", relu()},
                                 {"grouped", grouped},
                                 {"pool", max_pool2d(2)},
                                 {"relu3", relu()},
                                 {"flatten", flatten()},
                                 {"dropout", dropout(0.5)},
                                 {"fc", fc}});
  const Tensor x = testing::random_tensor({4, 6, 6, 3}, 2, DType::kF32);
  const Tensor before = output_of(*model, x);
  EXPECT_THAT(equalize(model), ElementsAre(Pair("stem", "depthwise"), Pair("depthwise", "grouped"),
                                           Pair("grouped", "fc")));
  EXPECT_TRUE(testing::all_close(output_of(*model, x), before, 1e-4, 1e-4));

  // The largest folded weight that makes a channel is the largest that reads it.
  const auto folded = [](const Tensor& weight, const BatchNorm2d* bn, std::int64_t row) {
    const std::int64_t size = weight.size() / weight.dim(0);
    double most = 0;
    for (std::int64_t i = row * size; i < (row + 1) * size; ++i) {
      most = std::max(most, std::abs(static_cast<double>(weight.data<float>()[i])));
    }
    if (bn == nullptr) return most;
    const auto at = static_cast<std::size_t>(row);
    return std::abs(most * bn->weight().value().span<float>()[at] /
                    std::sqrt(bn->running_var().span<float>()[at] + bn->options().eps));
  };
  for (std::int64_t c = 0; c < 8; ++c) {
    const double made = folded(stem->weight().value(), stem_norm.get(), c);
    EXPECT_NEAR(made / folded(depthwise->weight().value(), depthwise_norm.get(), c), 1, 0.01);
    // Group c / 2 of `grouped` has 3 outputs of 2 inputs each.
    double read = 0;
    for (std::int64_t o = c / 2 * 3; o < c / 2 * 3 + 3; ++o) {
      const float w = grouped->weight().value().data<float>()[o * 2 + c % 2];
      read = std::max(read, std::abs(static_cast<double>(w)));
    }
    EXPECT_NEAR(folded(depthwise->weight().value(), depthwise_norm.get(), c) / read, 1, 0.01);
  }
  for (std::int64_t c = 0; c < 12; ++c) {
    double read = 0;
    for (std::int64_t o = 0; o < 5; ++o) {
      for (std::int64_t k = 0; k < 9; ++k) {
        const float w = fc->weight().value().data<float>()[o * 108 + c * 9 + k];
        read = std::max(read, std::abs(static_cast<double>(w)));
      }
    }
    EXPECT_NEAR(folded(grouped->weight().value(), nullptr, c) / read, 1, 0.01);
  }
}

// One pair converges at once: s = sqrt(r1 r2) / r2.
TEST(Equalize, ThePapersFactors) {
  Rng rng(1);
  const auto a = linear(2, 2, rng), b = linear(2, 1, rng);
  a->weight().value().copy_from(Tensor::from<float>({8, -2, 0, 0}, {2, 2}));
  a->bias().value().copy_from(Tensor::from<float>({4, 1}, {2}));
  b->weight().value().copy_from(Tensor::from<float>({-2, 3}, {1, 2}));
  equalize(sequential({{"a", a}, {"b", b}}));
  const auto values = [](const Tensor& t) {
    const auto span = t.span<float>();
    return std::vector<float>(span.begin(), span.end());
  };
  EXPECT_THAT(values(a->weight().value()), ElementsAre(4, -1, 0, 0));  // s = 2; zeros stay
  EXPECT_THAT(values(a->bias().value()), ElementsAre(2, 1));
  EXPECT_THAT(values(b->weight().value()), ElementsAre(-4, 3));
}

TEST(Equalize, LeavesWhatFactorsDoNotPassThrough) {
  Rng rng(1);
  for (const std::shared_ptr<Module>& between :
       {std::shared_ptr<Module>(relu6()), std::shared_ptr<Module>(hardswish()),
        std::shared_ptr<Module>(sigmoid())}) {
    EXPECT_TRUE(equalize(sequential({{"a", conv2d(2, 3, 1, rng)},
                                     {"between", between},
                                     {"b", conv2d(3, 2, 1, rng)}}))
                    .empty());
  }
  // A value with two readers.
  EXPECT_TRUE(
      equalize(sequential({{"a", conv2d(2, 3, 1, rng)}, {"sum", residual(conv2d(3, 3, 1, rng))}}))
          .empty());
}

}  // namespace
}  // namespace steelyard::qat
