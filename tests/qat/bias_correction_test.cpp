#include "steelyard/qat/ptq/bias_correction.h"
#include "steelyard/qat/model/named_quantizers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "steelyard/layers/containers/builders.h"
#include "steelyard/qat/forms/quantized_layer.h"
#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/qat/ptq/adaround.h"
#include "steelyard/qat/ptq/calibrate.h"
#include "tests/support/tensors.h"

namespace steelyard::qat::bias_correction_test {
namespace {

constexpr std::int64_t kSamples = 6, kSide = 5, kIn = 2, kMid = 3, kOut = 4;

Tensor images() {
  Tensor x = testing::random_tensor({kSamples, kSide, kSide, kIn}, 3, DType::kF32);
  for (float& v : x.span<float>()) v += 0.5F;  // a mean to be shifted
  return x;
}

// A convolution with a norm and a ReLU, and a linear layer, with weights of 2 bits.
PreparedModel prepared_model(BatchNormFold fold) {
  Rng rng(1);
  QConfig config = default_w8a8();
  config.weights->scheme.bits = 2;
  config.activations->observer = {.type = "min_max"};
  QuantizeConfig all;
  all.groups.push_back({{"Conv2d", "Linear"}, config});
  all.bn_fold = fold;
  const auto norm = batch_norm2d(kMid);
  const std::vector<float> mean{0.1F, -0.2F, 0.3F}, var{0.5F, 1.5F, 1.0F};
  norm->running_mean().copy_from(Tensor::from<float>(mean, {kMid}));
  norm->running_var().copy_from(Tensor::from<float>(var, {kMid}));
  return prepare(sequential({{"conv", conv2d(kIn, kMid, 3, rng, {.padding = {1, 1}})},
                             {"bn", norm},
                             {"relu", relu()},
                             {"flatten", flatten()},
                             {"fc", linear(kSide * kSide * kMid, kOut, rng)}}),
                 all);
}

std::vector<double> doubles(const Tensor& t) {
  const auto span = t.span<float>();
  return {span.begin(), span.end()};
}

// What a layer has in front of its activation, averaged by plain loops.
std::vector<double> means_of(Module& model, QuantizedLayer& layer, const Tensor& inputs) {
  const NoGradGuard no_grad;
  std::vector<double> means;
  layer.set_probe([&](const Variable&, const QuantizedLayer::Values& compute) {
    const Tensor values = compute();
    const auto channels = static_cast<std::size_t>(values.dim(-1));
    means.assign(channels, 0);
    const std::vector<double> all = doubles(values);
    for (std::size_t i = 0; i < all.size(); ++i) {
      means[i % channels] +=
          all[i] * static_cast<double>(channels) / static_cast<double>(all.size());
    }
  });
  ForwardContext evaluation;
  model.forward(Variable(inputs), evaluation);
  layer.set_probe({});
  return means;
}

QuantizedLayer& layer_at(Module& model, const std::string& path) {
  return dynamic_cast<QuantizedLayer&>(*model.slot(path).module());
}

void set_quantizing(Module& model, bool on) {
  for (const NamedQuantizer& entry : named_quantizers(model)) {
    entry.quantizer->set_quantizing(on);
  }
}

TEST(BiasCorrection, GivesEachChannelItsMeanInFloat) {
  for (const BatchNormFold fold :
       {BatchNormFold::kFrozen, BatchNormFold::kBatchCorrected, BatchNormFold::kNone}) {
    const NoGradGuard no_grad;
    const auto model = prepared_model(fold).model;
    const Tensor x = images();
    calibrate(*model, 1, [&](std::int64_t) { return x; });
    QuantizedLayer &conv = layer_at(*model, "conv"), &fc = layer_at(*model, "fc");
    set_quantizing(*model, false);
    const auto conv_float = means_of(*model, conv, x), fc_float = means_of(*model, fc, x);
    set_quantizing(*model, true);
    const auto before = means_of(*model, fc, x);
    EXPECT_TRUE(layers_without_bias(*model).empty());
    EXPECT_EQ(correct_biases(*model, x, float_means(*model, x)), 2);
    // A bias is a whole number of s_x * s_w.
    const auto conv_after = means_of(*model, conv, x), fc_after = means_of(*model, fc, x);
    double shift = 0;
    for (std::size_t c = 0; c < conv_float.size(); ++c) {
      EXPECT_NEAR(conv_after[c], conv_float[c], 0.003);
    }
    for (std::size_t c = 0; c < fc_float.size(); ++c) {
      EXPECT_NEAR(fc_after[c], fc_float[c], 0.003);
      shift = std::max(shift, std::abs(before[c] - fc_float[c]));
    }
    EXPECT_GT(shift, 0.01) << "there was nothing to correct";
    for (const NamedQuantizer& entry : named_quantizers(*model)) {
      EXPECT_TRUE(entry.quantizer->observing() && entry.quantizer->quantizing()) << entry.name;
    }
  }
}

// b' = b - (W~ E[x~] - W E[x]) for a layer that the network begins with, by plain loops over its
// tensors (arXiv:1906.04721, equation 14, with the rounding of the inputs beside that of weights).
TEST(BiasCorrection, FollowsThePapersFormula) {
  const NoGradGuard no_grad;
  Rng rng(4);
  QConfig config = default_w8a8();
  config.weights->scheme.bits = 3;
  config.activations->observer = {.type = "min_max"};
  QuantizeConfig all;
  all.groups.push_back({{"Linear"}, config});
  const auto model = prepare(sequential({{"fc", linear(7, 3, rng)}}), all).model;
  const Tensor x = testing::random_tensor({20, 7}, 5, DType::kF32);
  calibrate(*model, 1, [&](std::int64_t) { return x; });
  QuantizedLayer& layer = layer_at(*model, "fc");
  const std::vector<double> weight = doubles(layer.weight().value());
  const std::vector<double> bias = doubles(layer.bias().value());
  const auto quantizer = [&](const std::string& name) {
    for (const NamedQuantizer& entry : named_quantizers(*model)) {
      if (entry.name == name) return entry.quantizer;
    }
    throw std::out_of_range(name);
  };
  const auto scales = quantizer("fc.weight_quantizer")->host_scale();
  const double scale = quantizer("input_quantizer")->host_scale()[0];
  const int zero_point = quantizer("input_quantizer")->host_zero_point()[0];
  std::vector<double> mean(7, 0), quantized_mean(7, 0);
  const std::vector<double> values = doubles(x);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double code = std::clamp(std::nearbyint(values[i] / scale) + zero_point, 0.0, 255.0);
    mean[i % 7] += values[i] / 20;
    quantized_mean[i % 7] += (code - zero_point) * scale / 20;
  }
  correct_biases(*model, x, float_means(*model, x));
  for (std::size_t o = 0; o < 3; ++o) {
    double expected = bias[o];
    for (std::size_t k = 0; k < 7; ++k) {
      const double w = weight[o * 7 + k];
      const double rounded = std::clamp(std::nearbyint(w / scales[o]), -3.0, 3.0) * scales[o];
      expected -= rounded * quantized_mean[k] - w * mean[k];
    }
    // The bias that was added to the product had been rounded to s_x * s_w.
    EXPECT_NEAR(layer.bias().value().span<float>()[o], expected, 0.51 * scale * scales[o]);
  }
}

// Learned rounding moves weights: without the quantizers they are no longer those of the float
// network, whose means are the goal.
TEST(BiasCorrection, GivesMeansOfTheNetworkBeforeItsRoundingWasLearned) {
  const auto model = prepared_model(BatchNormFold::kFrozen).model;
  const Tensor x = images();
  calibrate(*model, 1, [&](std::int64_t) { return x; });
  QuantizedLayer& fc = layer_at(*model, "fc");
  set_quantizing(*model, false);
  const auto in_float = means_of(*model, fc, x);
  set_quantizing(*model, true);
  FloatMeans wanted = float_means(*model, x);
  std::int64_t moved = 0;
  for (const LearnedRounding& layer :
       learn_rounding(*model, x, {.iterations = 200, .batch_size = kSamples})) {
    moved += layer.changed;
  }
  ASSERT_GT(moved, 0);
  set_quantizing(*model, false);
  const auto after_moves = means_of(*model, fc, x);
  set_quantizing(*model, true);
  correct_biases(*model, x, std::move(wanted), WeightScales::kKeep);
  const auto corrected = means_of(*model, fc, x);
  double shift = 0;
  for (std::size_t c = 0; c < in_float.size(); ++c) {
    EXPECT_NEAR(corrected[c], in_float[c], 0.003);
    shift = std::max(shift, std::abs(after_moves[c] - in_float[c]));
  }
  EXPECT_GT(shift, 0.01) << "the moved weights would have given the same means";
}

TEST(BiasCorrection, NamesLayersWithoutABias) {
  Rng rng(1);
  QuantizeConfig all;
  all.groups.push_back({{"Linear"}, default_w8a8()});
  const auto model =
      prepare(sequential({{"a", linear(4, 3, rng, false)}, {"b", linear(3, 2, rng)}}), all).model;
  const Tensor x = testing::random_tensor({5, 4}, 1, DType::kF32);
  calibrate(*model, 1, [&](std::int64_t) { return x; });
  EXPECT_EQ(layers_without_bias(*model), std::vector<std::string>{"a"});
  EXPECT_EQ(correct_biases(*model, x, float_means(*model, x)), 1);
}

}  // namespace
}  // namespace steelyard::qat::bias_correction_test
