#include "steelyard/qat/ptq/equalize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "steelyard/layers/containers/builders.h"
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

ModulePtr<BatchNorm2d> random_norm(std::int64_t channels, std::uint64_t seed) {
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
  const auto stem_norm = random_norm(8, 10), depthwise_norm = random_norm(8, 20);
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

// Weights [C, O/groups, KH, KW], the other way round.
TEST(Equalize, TransposedConvolutions) {
  Rng rng(1);
  constexpr std::int64_t kIn = 8, kOut = 12, kGroups = 4, kTaps = 4;
  const auto conv = conv2d(3, kIn, 3, rng, {.padding = {1, 1}});
  const auto up = conv_transpose2d({.in_channels = kIn,
                                    .out_channels = kOut,
                                    .kernel_size = {2, 2},
                                    .stride = {2, 2},
                                    .groups = kGroups},
                                   rng);
  const auto last = conv_transpose2d(
      {.in_channels = kOut, .out_channels = 2, .kernel_size = {1, 1}, .bias = false}, rng);
  const auto up_norm = random_norm(kOut, 10);
  const auto model = sequential({{"conv", conv},
                                 {"relu1", relu()},
                                 {"up", up},
                                 {"norm", up_norm},
                                 {"relu2", relu()},
                                 {"last", last}});
  const Tensor x = testing::random_tensor({4, 6, 6, 3}, 2, DType::kF32);
  const Tensor before = output_of(*model, x);
  EXPECT_THAT(equalize(model), ElementsAre(Pair("conv", "up"), Pair("up", "last")));
  EXPECT_TRUE(testing::all_close(output_of(*model, x), before, 1e-4, 1e-4));

  std::vector<double> made(kOut, 0), read(kIn, 0);
  const std::vector<NamedParameter> parameters = up->named_parameters();
  const auto weight = parameters[0].variable.value().span<float>();
  const auto gamma = up_norm->weight().value().span<float>();
  const auto variance = up_norm->running_var().span<float>();
  constexpr std::int64_t kOutOfGroup = kOut / kGroups, kInOfGroup = kIn / kGroups;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i) / kTaps;
    const auto c = static_cast<std::size_t>(at / kOutOfGroup);
    const auto o =
        static_cast<std::size_t>(at / kOutOfGroup / kInOfGroup * kOutOfGroup + at % kOutOfGroup);
    const double w =
        std::abs(weight[i] * gamma[o] / std::sqrt(variance[o] + up_norm->options().eps));
    made[o] = std::max(made[o], w);
    read[c] = std::max(read[c], w);
  }
  const auto largest = [](std::span<const float> row) {
    double most = 0;
    for (const float w : row) most = std::max(most, std::abs(double{w}));
    return most;
  };
  const auto before_it = conv->weight().value().span<float>();
  for (std::size_t c = 0; c < read.size(); ++c) {
    EXPECT_NEAR(largest(before_it.subspan(c * 27, 27)) / read[c], 1, 0.01) << c;
  }
  const std::vector<NamedParameter> of_last = last->named_parameters();
  const auto behind = of_last[0].variable.value().span<float>();
  for (std::size_t o = 0; o < made.size(); ++o) {
    EXPECT_NEAR(made[o] / largest(behind.subspan(o * 2, 2)), 1, 0.01) << o;
  }
}

// Its form says how the weights lie, or the layer stays as it is.
TEST(Equalize, AFormOfOnesOwn) {
  class Own : public Linear {
   public:
    using Linear::Linear;
  };
  QuantizedForm form = form_of<Own>(
      "Own", FormKind::kWeighted,
      [](const Own&, const FormRequest&) -> std::shared_ptr<Module> { return nullptr; });
  Rng rng(1);
  const auto model = sequential({{"own", std::make_shared<Own>(LinearOptions{4, 3}, rng)},
                                 {"relu", relu()},
                                 {"fc", linear(3, 2, rng)}});
  EXPECT_TRUE(equalize(model, {form}).empty());
  form.groups = [](const Module&) { return 1; };
  EXPECT_THAT(equalize(model, {form}), ElementsAre(Pair("own", "fc")));
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
