// Learned rounding: codes against the best of all that there are, which weights move, and where
// codes are stored. The objective is compared with PyTorch's in tests/reference.
#include "steelyard/qat/ptq/adaround.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "steelyard/layers/containers/builders.h"
#include "steelyard/layers/weighted/conv_transpose2d.h"
#include "steelyard/qat/forms/weighted_layers.h"
#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/qat/ptq/calibrate.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using testing::values;

QuantizeConfig config_of(const std::vector<std::string>& targets, int bits,
                         kernels::Granularity granularity, bool symmetric = true,
                         BatchNormFold fold = BatchNormFold::kFrozen) {
  QConfig config = default_w8a8();
  config.weights->scheme.bits = bits;
  config.weights->scheme.granularity = granularity;
  config.weights->scheme.group_size = granularity == kernels::Granularity::kGroup ? 3 : 0;
  config.weights->scheme.symmetric = config.weights->scheme.narrow_range = symmetric;
  QuantizeConfig all;
  all.groups.push_back({targets, config});
  all.bn_fold = fold;
  return all;
}

std::shared_ptr<Module> calibrated(const std::shared_ptr<Module>& network,
                                   const QuantizeConfig& config, const Tensor& x) {
  const auto model = prepare(network, config).model;
  calibrate(*model, 1, [&](std::int64_t) { return x; });
  return model;
}

// The codes of every layer in evaluation, on its own input there.
std::vector<std::vector<double>> codes_of(Module& model, const Tensor& x) {
  std::vector<std::vector<double>> codes;
  for (const NamedLayer& entry : layers_with_quantized_weights(model)) {
    entry.layer->set_probe([&codes, entry](const Variable& input, const QuantizedLayer::Values&) {
      codes.push_back(values(entry.layer->evaluated_weights(input).codes));
    });
  }
  ForwardContext evaluation;
  model.forward(Variable(x), evaluation).value();
  for (const NamedLayer& entry : layers_with_quantized_weights(model)) entry.layer->set_probe({});
  return codes;
}

double squared_distance(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double d = double{a.data<float>()[i]} - double{b.data<float>()[i]};
    sum += d * d;
  }
  return sum;
}

// Inputs whose features go together, so that errors of weights can make up for each other.
Tensor correlated(const Shape& shape, std::uint64_t seed) {
  Tensor x = testing::random_tensor(shape, seed, DType::kF32);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    x.data<float>()[i] = 0.3F * x.data<float>()[i] + 1 + 0.1F * static_cast<float>(i % 5);
  }
  return x;
}

// Ten weights have two codes each: one of the best tenth of all 1024 roundings is found.
TEST(AdaRound, FindsOneOfTheBestRoundings) {
  Rng rng(3);
  const auto network = sequential({{"fc", linear(10, 1, rng)}});
  const auto fc = std::dynamic_pointer_cast<Linear>(network->slot("fc").module());
  const Tensor weight = fc->weight().value().clone();
  const double bias = fc->bias().value().item();
  const Tensor x = correlated({64, 10}, 1);
  QuantizeConfig config = config_of({"Linear"}, 3, kernels::Granularity::kChannel);
  config.groups[0].config.activations.reset();  // the inputs are what they are
  const auto model = calibrated(network, config, x);
  const auto learned =
      learn_rounding(*model, x, {.iterations = 1500, .batch_size = 64, .regularization = 1e-4});
  ASSERT_EQ(learned.size(), 1U);
  const NamedLayer layer = layers_with_quantized_weights(*model)[0];
  const float scale = layer.layer->weight_quantizer()->host_scale()[0];
  double nearest = 0;
  int better = 0;
  for (int choice = 0; choice < 1024; ++choice) {
    double error = 0;
    bool is_nearest = true;
    std::vector<double> difference;
    for (int k = 0; k < 10; ++k) {
      const double w = weight.data<float>()[k], floor = std::floor(w / scale);
      const double code = std::clamp(floor + (choice >> k & 1), -3.0, 3.0);
      is_nearest &= code == std::clamp(std::nearbyint(w / scale), -3.0, 3.0);
      difference.push_back(code * scale - w);
    }
    for (int n = 0; n < 64; ++n) {
      double d = 0;
      for (int k = 0; k < 10; ++k)
        d += difference[static_cast<std::size_t>(k)] * x.data<float>()[n * 10 + k];
      error += d * d / 64;
    }
    better += error < learned[0].error * (1 - 1e-4);
    if (is_nearest) nearest = error;
  }
  EXPECT_NEAR(learned[0].nearest_error, nearest, 1e-4 * nearest);
  EXPECT_LT(better, 102);
  EXPECT_LT(learned[0].error, 0.1 * nearest);
  // The error is that of the network as it is now.
  ForwardContext evaluation;
  const Tensor y = model->forward(Variable(x), evaluation).value();
  Tensor wanted = Tensor::empty({64, 1});
  for (int n = 0; n < 64; ++n) {
    double sum = bias;
    for (int k = 0; k < 10; ++k)
      sum += double{weight.data<float>()[k]} * x.data<float>()[n * 10 + k];
    wanted.data<float>()[n] = static_cast<float>(sum);
  }
  EXPECT_NEAR(squared_distance(y, wanted) / 64, learned[0].error, 1e-3 * nearest);
}

struct RoundingCase {
  const char* name;
  kernels::Granularity granularity = kernels::Granularity::kChannel;
  bool symmetric = true;
  BatchNormFold fold = BatchNormFold::kFrozen;
  int bits = 3;
};
void PrintTo(const RoundingCase& c, std::ostream* out) { *out << c.name; }

class LearnedRoundings : public ::testing::TestWithParam<RoundingCase> {
 protected:
  // Plain, depthwise and transposed convolutions and a linear layer.
  static std::shared_ptr<Module> network() {
    Rng rng(5);
    const auto norm = batch_norm2d(6);
    const std::vector<float> gamma{1, -2, 0.5F, 0, 3, 1.5F}, mean{0.1F, -0.2F, 0.3F, 0, 0, 1};
    norm->weight().value().copy_from(Tensor::from(gamma, {6}));
    norm->running_mean().copy_from(Tensor::from(mean, {6}));
    const auto up = std::make_shared<ConvTranspose2d>(ConvTranspose2dOptions{.in_channels = 6,
                                                                             .out_channels = 4,
                                                                             .kernel_size = {3, 3},
                                                                             .stride = {2, 2},
                                                                             .groups = 2},
                                                      rng);
    return sequential({{"conv", conv2d(3, 6, 3, rng, {.padding = {1, 1}})},
                       {"norm", norm},
                       {"relu", relu()},
                       {"depthwise", conv2d(6, 6, 3, rng, {.groups = 6})},
                       {"relu6", relu6()},
                       {"up", up},
                       {"flatten", flatten()},
                       {"fc", linear(4 * 9 * 9, 3, rng)}});
  }
  std::shared_ptr<Module> model(const Tensor& x) const {
    const RoundingCase& c = GetParam();
    return calibrated(network(),
                      config_of({"Conv2d", "ConvTranspose2d", "Linear"}, c.bits, c.granularity,
                                c.symmetric, c.fold),
                      x);
  }
  static constexpr AdaRoundOptions kOptions{
      .iterations = 150, .batch_size = 8, .learning_rate = 0.03};
};
INSTANTIATE_TEST_SUITE_P(
    Cases, LearnedRoundings,
    ::testing::Values(
        RoundingCase{"channel"}, RoundingCase{"tensor", kernels::Granularity::kTensor},
        RoundingCase{"groups", kernels::Granularity::kGroup},
        RoundingCase{"zero_points", kernels::Granularity::kChannel, false},
        RoundingCase{"folded_in_each_step", kernels::Granularity::kChannel, true,
                     BatchNormFold::kBatchCorrected},
        RoundingCase{"norm_behind", kernels::Granularity::kChannel, true, BatchNormFold::kNone},
        RoundingCase{"two_bits", kernels::Granularity::kChannel, true, BatchNormFold::kFrozen, 2},
        RoundingCase{"eight_bits", kernels::Granularity::kChannel, true, BatchNormFold::kFrozen,
                     8}),
    [](const auto& p) { return std::string(p.param.name); });

// Scales stay, codes are those that were learned, no code moves by more than one, and the output of
// the whole comes nearer to that in float.
TEST_P(LearnedRoundings, MoveWeightsToTheirCodes) {
  const Tensor x = correlated({24, 6, 6, 3}, 2);
  const auto layers = model(x);
  const auto source = network();
  ForwardContext evaluation;
  const Tensor wanted = source->forward(Variable(x), evaluation).value();
  const double before = squared_distance(layers->forward(Variable(x), evaluation).value(), wanted);
  const auto nearest = codes_of(*layers, x);
  std::vector<std::vector<float>> scales;
  for (const NamedLayer& entry : layers_with_quantized_weights(*layers)) {
    scales.push_back(entry.layer->weight_quantizer()->host_scale());
  }
  const auto learned = learn_rounding(*layers, x, kOptions);
  const auto codes = codes_of(*layers, x);
  ASSERT_EQ(learned.size(), 4U);
  std::int64_t changed = 0;
  const auto named = layers_with_quantized_weights(*layers);
  for (std::size_t i = 0; i < learned.size(); ++i) {
    EXPECT_EQ(learned[i].layer, named[i].name);
    EXPECT_LE(learned[i].error, learned[i].nearest_error);
    EXPECT_EQ(named[i].layer->weight_quantizer()->host_scale(), scales[i]);
    std::int64_t others = 0;
    for (std::size_t k = 0; k < codes[i].size(); ++k) {
      others += codes[i][k] != nearest[i][k];
      ASSERT_LE(std::abs(codes[i][k] - nearest[i][k]), 1) << learned[i].layer << ' ' << k;
    }
    EXPECT_EQ(others, learned[i].changed) << learned[i].layer;
    changed += others;
  }
  EXPECT_GT(changed, 10);
  EXPECT_LT(squared_distance(layers->forward(Variable(x), evaluation).value(), wanted), before);
  for (const NamedParameter& p : layers->named_parameters()) {
    EXPECT_TRUE(p.variable.requires_grad()) << p.name;
    EXPECT_FALSE(p.variable.grad().defined()) << p.name;
  }
}

TEST(AdaRound, NeedsBatches) {
  Rng rng(1);
  Linear layer({2, 2}, rng);
  for (const std::int64_t batch_size : {0, -1}) {
    AdaRoundOptions options;
    options.batch_size = batch_size;
    EXPECT_THROW(learn_rounding(layer, Tensor::zeros({4, 2}), options), std::invalid_argument);
  }
}

TEST_P(LearnedRoundings, AreTheSameAgain) {
  const Tensor x = correlated({24, 6, 6, 3}, 2);
  const auto a = model(x), b = model(x), other = model(x);
  AdaRoundOptions options = kOptions;
  options.iterations = 40;
  learn_rounding(*a, x, options);
  learn_rounding(*b, x, options);
  EXPECT_EQ(codes_of(*a, x), codes_of(*b, x));
  options.seed = 2;
  learn_rounding(*other, x, options);
  EXPECT_NE(codes_of(*a, x), codes_of(*other, x));
}

// Ranges of activations are found again for what the network is now; the codes of weights stay.
TEST(MeasureAgain, FollowsBiasesThatChanged) {
  Rng rng(1);
  const Tensor x = correlated({16, 4}, 3);
  const auto model = calibrated(sequential({{"fc", linear(4, 3, rng)}, {"out", linear(3, 2, rng)}}),
                                config_of({"Linear"}, 4, kernels::Granularity::kChannel), x);
  const NamedLayer fc = layers_with_quantized_weights(*model)[0];
  const float before = fc.layer->output_quantizer()->host_scale()[0];
  for (float& b : fc.layer->bias().value().span<float>()) b += 10;
  const Tensor moved = fc.layer->weight().value();
  moved.data<float>()[0] *= 2;  // an extreme, perhaps: scales must not follow
  const auto scale = fc.layer->weight_quantizer()->host_scale();
  const auto inputs = [&](std::int64_t) { return x; };
  EXPECT_TRUE(measure_again(*model, 1, inputs, WeightScales::kKeep));
  EXPECT_EQ(fc.layer->weight_quantizer()->host_scale(), scale);
  ForwardContext evaluation;
  float lo = 0, hi = 0;  // of what the layer computes now
  fc.layer->set_probe([&](const Variable&, const QuantizedLayer::Values& compute) {
    const Tensor computed = compute();
    for (const float v : computed.span<float>()) {
      lo = std::min(lo, v);
      hi = std::max(hi, v);
    }
  });
  model->forward(Variable(x), evaluation);
  EXPECT_NEAR(fc.layer->output_quantizer()->host_scale()[0], (hi - lo) / 255, 1e-5);
  EXPECT_GT(fc.layer->output_quantizer()->host_scale()[0], 2 * before);
  moved.data<float>()[0] *= 4;
  EXPECT_TRUE(measure_again(*model, 1, inputs, WeightScales::kFollow));
  EXPECT_NE(fc.layer->weight_quantizer()->host_scale(), scale);
}

TEST(MeasureAgain, HasNothingToDoWithoutQuantizedActivations) {
  Rng rng(1);
  const Tensor x = correlated({16, 4}, 3);
  QuantizeConfig config = config_of({"Linear"}, 4, kernels::Granularity::kChannel);
  config.groups[0].config.activations.reset();
  const auto model = calibrated(sequential({{"fc", linear(4, 3, rng)}}), config, x);
  EXPECT_FALSE(measure_again(
      *model, 1, [&](std::int64_t) { return x; }, WeightScales::kKeep));
}

}  // namespace
}  // namespace steelyard::qat
