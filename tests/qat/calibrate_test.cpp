#include "steelyard/qat/ptq/calibrate.h"
#include "steelyard/qat/model/named_quantizers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "steelyard/framework/train/trainer.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/dropout.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/model/schedule.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

constexpr std::int64_t kBatches = 3;

Tensor calibration_batch(std::int64_t i) {
  return testing::random_tensor({4, 5, 5, 2}, static_cast<std::uint64_t>(10 + i), DType::kF32);
}

// Weights per channel, extremes of everything seen for activations.
PreparedModel prepared_model(const Tensor* weight = nullptr, const Tensor* bias = nullptr) {
  Rng rng(1);
  const auto conv = std::make_shared<Conv2d>(
      Conv2dOptions{.in_channels = 2, .out_channels = 3, .kernel_size = {3, 3}}, rng);
  if (weight != nullptr) conv->named_parameters()[0].variable.value().copy_from(*weight);
  if (bias != nullptr) conv->named_parameters()[1].variable.value().copy_from(*bias);
  QConfig config = default_w8a8();
  config.activations->observer = {.type = "min_max"};
  QuantizeConfig all;
  all.groups.push_back({{"Conv2d", "Linear"}, config});
  all.bn_fold = BatchNormFold::kNone;
  return prepare(std::make_shared<Sequential>(Sequential::NamedChildren{
                     {"conv", conv},
                     {"bn", std::make_shared<BatchNorm2d>(BatchNorm2dOptions{.channels = 3})},
                     {"flatten", std::make_shared<Flatten>()},
                     {"dropout", std::make_shared<Dropout>(0.5)},
                     {"fc", std::make_shared<Linear>(LinearOptions{27, 2}, rng)}}),
                 all);
}

FakeQuantize& quantizer(Module& model, std::string_view name) {
  for (const NamedQuantizer& entry : named_quantizers(model)) {
    if (entry.name == name) return *entry.quantizer;
  }
  throw std::out_of_range(std::string(name));
}

TEST(Calibrate, InputAndWeightRangesAreThoseOfTheDataAndTheWeights) {
  const auto model = prepared_model().model;
  float lo = 0, hi = 0;
  for (std::int64_t i = 0; i < kBatches; ++i) {
    const Tensor inputs = calibration_batch(i);
    for (const float x : inputs.span<float>()) {
      lo = std::min(lo, x);
      hi = std::max(hi, x);
    }
  }
  calibrate(*model, kBatches, calibration_batch);
  const auto expected = observers::choose_qparams({lo, hi}, default_w8a8().activations->scheme);
  const FakeQuantize& input = quantizer(*model, "input_quantizer");
  EXPECT_EQ(input.host_scale()[0], expected.scale);
  EXPECT_EQ(input.host_zero_point()[0], expected.zero_point);
  const Tensor weight = model->named_parameters()[0].variable.value();
  const auto first = weight.span<float>().first(18);  // channel 0
  const float amax = std::abs(*std::max_element(
      first.begin(), first.end(), [](float a, float b) { return std::abs(a) < std::abs(b); }));
  EXPECT_EQ(quantizer(*model, "conv.weight_quantizer").host_scale()[0],
            static_cast<float>(static_cast<double>(amax) / 127));
}

// The first batch of an average, and of what is averaged, weighs no more than the others.
TEST(Calibrate, NeedsInputs) {
  const auto model = prepared_model().model;
  EXPECT_THROW(calibrate(*model, 1, nullptr), std::invalid_argument);
}

TEST(Calibrate, BatchesWeighTheSameInAverages) {
  constexpr std::int64_t kMany = 32;
  const auto growing = [](std::int64_t i) {
    return Tensor::from(std::vector<float>{0, static_cast<float>(i + 1)}, {1, 2});
  };
  for (const char* observer : {"moving_average", "mse", "moving_percentile"}) {
    Rng rng(1);
    QConfig config = default_w8a8();
    config.activations->observer = {.type = observer, .percentile = 100};
    QuantizeConfig all;
    all.groups.push_back({{"Linear"}, config});
    const auto model = prepare(std::make_shared<Sequential>(Sequential::NamedChildren{
                                   {"fc", std::make_shared<Linear>(LinearOptions{2, 1}, rng)}}),
                               all)
                           .model;
    calibrate(*model, kMany, growing);
    EXPECT_NEAR(quantizer(*model, "input_quantizer").host_scale()[0] * 255, (kMany + 1) / 2.0, 0.01)
        << observer;
  }
}

// With weights in float, an output's range is that of the float layer, however coarse the weights.
TEST(Calibrate, RangesOfFloatWeights) {
  const auto output_scale = [](int bits, CalibrationWeights weights) {
    QConfig config = default_w8a8();
    config.weights->scheme.bits = bits;
    QuantizeConfig all;
    all.groups.push_back({{"Linear"}, config});
    Rng rng(1);
    const auto model = prepare(std::make_shared<Linear>(LinearOptions{50, 2}, rng), all).model;
    calibrate(
        *model, 1,
        [](std::int64_t i) {
          return calibration_batch(i).reshape({4, 50});
        },
        weights);
    EXPECT_TRUE(quantizer(*model, "weight_quantizer").quantizing());
    return quantizer(*model, "output_quantizer").host_scale()[0];
  };
  EXPECT_EQ(output_scale(2, CalibrationWeights::kFloat),
            output_scale(8, CalibrationWeights::kFloat));
  EXPECT_NE(output_scale(2, CalibrationWeights::kQuantized),
            output_scale(8, CalibrationWeights::kQuantized));
}

// No dropout (there is no random generator to draw from), no batch statistics, switches as before.
TEST(Calibrate, TouchesNothingButRanges) {
  const auto model = prepared_model().model;
  std::vector<std::vector<float>> before, after;
  const auto collect = [&](std::vector<std::vector<float>>& into) {
    for (const NamedParameter& p : model->named_parameters()) {
      into.emplace_back(p.variable.value().span<float>().begin(),
                        p.variable.value().span<float>().end());
    }
    for (const NamedBuffer& buffer : model->named_buffers()) {
      if (buffer.name.find("running") == std::string::npos) continue;
      into.emplace_back(buffer.tensor.span<float>().begin(), buffer.tensor.span<float>().end());
    }
  };
  FakeQuantize& fc = quantizer(*model, "fc.output_quantizer");
  fc.set_observing(false);
  fc.set_quantizing(false);
  collect(before);
  calibrate(*model, kBatches, calibration_batch);
  collect(after);
  EXPECT_GT(before.size(), 4u);
  EXPECT_EQ(before, after);
  EXPECT_FALSE(fc.observing() || fc.quantizing());
  EXPECT_TRUE(fc.observed());
  EXPECT_TRUE(quantizer(*model, "conv.weight_quantizer").observing());
}

// The scale of a channel without weights comes from its bias and the input's scale.
TEST(Calibrate, BiasOfADeadChannelSurvives) {
  Tensor weight = testing::random_tensor({3, 2, 3, 3}, 5, DType::kF32);
  std::fill_n(weight.data<float>() + 18, 18, 0.0F);
  Tensor bias = Tensor::full({3}, 0.75);
  const auto model = prepared_model(&weight, &bias).model;
  calibrate(*model, kBatches, calibration_batch);
  const double product = static_cast<double>(quantizer(*model, "input_quantizer").host_scale()[0]) *
                         quantizer(*model, "conv.weight_quantizer").host_scale()[1];
  EXPECT_LE(product, 0.75 / (1 << 19));
  EXPECT_GE(product, 0.75 / (1 << 21));
}

TEST(Calibrate, NonFiniteValuesStopItAndNameTheQuantizer) {
  const auto model = prepared_model().model;
  const auto broken = [](std::int64_t i) {
    Tensor x = calibration_batch(i);
    if (i == 1) x.data<float>()[7] = std::numeric_limits<float>::infinity();
    return x;
  };
  try {
    calibrate(*model, kBatches, broken);
    FAIL() << "infinity went unnoticed";
  } catch (const TrainingDiverged& error) {
    EXPECT_EQ(std::string(error.what()).find("calibration, batch 2: "), 0u) << error.what();
    EXPECT_NE(std::string(error.what()).find("non-finite values reached the quantizer "),
              std::string::npos)
        << error.what();
  }
  EXPECT_THROW(calibrate(*model, 0, calibration_batch), std::invalid_argument);
}

TEST(Calibrate, KeptRangesDoNotMoveInTraining) {
  const auto model = prepared_model().model;
  calibrate(*model, kBatches, calibration_batch);
  ScheduleCallback schedule(*model, {.keep_ranges = true});
  schedule.on_epoch_begin(0);
  Rng rng(1);
  ForwardContext training{.training = true, .rng = &rng};
  std::vector<float> before, after;
  for (const NamedQuantizer& q : named_quantizers(*model))
    before.push_back(q.quantizer->host_scale()[0]);
  Tensor larger = calibration_batch(0);
  for (float& x : larger.span<float>()) x *= 100;
  model->forward(Variable(larger), training);
  for (const NamedQuantizer& q : named_quantizers(*model))
    after.push_back(q.quantizer->host_scale()[0]);
  EXPECT_EQ(before, after);
}

}  // namespace
}  // namespace steelyard::qat
