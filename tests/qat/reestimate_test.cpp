#include "steelyard/qat/ptq/reestimate.h"
#include "steelyard/qat/model/named_quantizers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "steelyard/layers/activations.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/dropout.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/forms/quantized_layer.h"
#include "steelyard/qat/model/schedule.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/temporary_folder.h"

namespace steelyard::qat::reestimate_test {
namespace {

using testing::all_close;
using testing::random_tensor;
using testing::values;

constexpr std::int64_t kChannels = 4;
constexpr std::int64_t kBatches = 3;

std::shared_ptr<Sequential> float_model() {
  Rng rng(3);
  Conv2dOptions conv;
  conv.in_channels = 2;
  conv.out_channels = kChannels;
  conv.kernel_size = {3, 3};
  conv.bias = false;
  return std::make_shared<Sequential>(Sequential::NamedChildren{
      {"conv", std::make_shared<Conv2d>(conv, rng)},
      {"bn", std::make_shared<BatchNorm2d>(BatchNorm2dOptions{.channels = kChannels})},
      {"relu", std::make_shared<ReLU>()},
      {"drop", std::make_shared<Dropout>(0.2)},
      {"gap", std::make_shared<GlobalAvgPool>()},
      {"fc", std::make_shared<Linear>(LinearOptions{kChannels, 3}, rng)}});
}

std::shared_ptr<Module> quantized_model(BatchNormFold mode, int bits = 8) {
  QuantizeConfig config;
  config.groups.push_back({{"Conv2d", "Linear"}, default_w8a8()});
  config.groups[0].config.weights->scheme.bits = bits;
  config.bn_fold = mode;
  return prepare(float_model(), config).model;
}

Tensor batch(std::int64_t i) {
  return random_tensor({4, 6, 6, 2}, static_cast<std::uint64_t>(i) + 1, DType::kF32);
}

BatchNorm2d& norm_of(Module& model) {
  for (const NamedModule& entry : model.named_modules()) {
    if (auto* norm = dynamic_cast<BatchNorm2d*>(entry.module)) return *norm;
  }
  throw std::out_of_range("no norm");
}

TEST(Reestimate, GivesTheMeanOverTheBatches) {
  const auto model = float_model();
  BatchNorm& norm = norm_of(*model);
  norm.set_frozen(true);
  reestimate_batch_norms(*model, kBatches, batch, 1);
  std::vector<double> mean(kChannels), variance(kChannels);
  ForwardContext evaluation;
  for (std::int64_t i = 0; i < kBatches; ++i) {
    const auto y = values(model->slot("conv")->forward(Variable(batch(i)), evaluation).value());
    const double rows = static_cast<double>(y.size()) / kChannels;
    for (std::size_t c = 0; c < kChannels; ++c) {
      double sum = 0, squares = 0;
      for (std::size_t k = c; k < y.size(); k += kChannels) sum += y[k];
      for (std::size_t k = c; k < y.size(); k += kChannels) {
        squares += (y[k] - sum / rows) * (y[k] - sum / rows);
      }
      mean[c] += sum / rows / kBatches;
      variance[c] += squares / (rows - 1) / kBatches;
    }
  }
  for (std::size_t c = 0; c < kChannels; ++c) {
    EXPECT_NEAR(values(norm.running_mean())[c], mean[c], 1e-6);
    EXPECT_NEAR(values(norm.running_var())[c], variance[c], 1e-5);
  }
  EXPECT_TRUE(norm.frozen());
  EXPECT_EQ(norm.options().momentum, 0.1);
}

TEST(Reestimate, NeedsABatch) {
  EXPECT_EQ(testing::message_of<std::invalid_argument>(
                [] { reestimate_batch_norms(*float_model(), 0, batch, 1); }),
            "[reestimate_batch_norms] expected 1 batch or more, got 0");
}

class Reestimation : public ::testing::TestWithParam<BatchNormFold> {};

INSTANTIATE_TEST_SUITE_P(Modes, Reestimation,
                         ::testing::Values(BatchNormFold::kNone, BatchNormFold::kBatchCorrected,
                                           BatchNormFold::kOneConvolution),
                         [](const auto& p) {
                           return p.param == BatchNormFold::kNone             ? "none"
                                  : p.param == BatchNormFold::kBatchCorrected ? "batch_corrected"
                                                                              : "one_convolution";
                         });

// Two-bit weights are far from the float ones: statistics of these leave an offset in the outputs,
// those of the quantized ones do not.
TEST_P(Reestimation, CentresWhatTheQuantizedWeightsGive) {
  const auto float_layers = float_model();
  QuantizeConfig config;
  config.groups.push_back({{"Conv2d"}, default_w8a8()});
  config.groups[0].config.weights->scheme.bits = 2;
  config.bn_fold = GetParam();
  const auto model = prepare(std::make_shared<Sequential>(Sequential::NamedChildren{
                                 {"conv", float_layers->slot("conv").module()},
                                 {"bn", float_layers->slot("bn").module()}}),
                             config)
                         .model;
  dynamic_cast<QuantizedLayer&>(*model->slot("conv")).output_quantizer()->set_quantizing(false);
  ForwardContext training{.training = true}, evaluation;
  for (std::int64_t i = 0; i < 100; ++i) model->forward(Variable(batch(i % kBatches)), training);
  const auto largest_mean = [&] {
    std::vector<double> sums(kChannels);
    double count = 0;
    for (std::int64_t i = 0; i < kBatches; ++i) {
      const auto y = values(model->forward(Variable(batch(i)), evaluation).value());
      for (std::size_t k = 0; k < y.size(); ++k) sums[k % kChannels] += y[k];
      count += static_cast<double>(y.size()) / kChannels;
    }
    double largest = 0;
    for (const double sum : sums) largest = std::max(largest, std::abs(sum / count));
    return largest;
  };
  if (GetParam() == BatchNormFold::kBatchCorrected) {
    EXPECT_GT(largest_mean(), 0.02);  // its statistics are those of the float weights
  }
  reestimate_batch_norms(*model, kBatches, batch, 1);
  EXPECT_LT(largest_mean(), 3e-3);  // half a step of the int32 bias: 2 bits make coarse scales
}

TEST_P(Reestimation, KeepsActivationRangesAndSwitches) {
  const auto model = quantized_model(GetParam());
  ScheduleCallback schedule(*model, {.freeze_observers = 1, .freeze_batch_norm = 1});
  Rng rng(1);
  ForwardContext training{.training = true, .rng = &rng};
  schedule.on_epoch_begin(0);
  model->forward(Variable(batch(0)), training);
  schedule.on_epoch_begin(1);
  std::vector<float> before, after;
  const auto ranges = [&](std::vector<float>& to) {
    for (const auto& q : named_quantizers(*model)) {
      EXPECT_FALSE(q.quantizer->observing()) << q.name;
      if (q.name != "conv.weight_quantizer") to.push_back(q.quantizer->host_scale()[0]);
    }
  };
  ranges(before);
  reestimate_batch_norms(*model, kBatches, batch, 1);
  ranges(after);
  EXPECT_EQ(before, after);
  EXPECT_TRUE(norm_of(*model).frozen());
}

// Weights that were folded with other statistics must not leave their range.
TEST_P(Reestimation, NoFoldedWeightIsCutOff) {
  const auto model = quantized_model(GetParam());
  Rng rng(1);
  ForwardContext training{.training = true, .rng = &rng}, evaluation;
  model->forward(Variable(batch(0)), training);
  for (const auto& q : named_quantizers(*model)) q.quantizer->set_observing(false);
  norm_of(*model).running_var().fill(100.0);  // as if averages lagged far behind
  reestimate_batch_norms(*model, kBatches, batch, 1);
  auto& layer = dynamic_cast<QuantizedLayer&>(*model->slot("conv"));
  const auto& folded = dynamic_cast<FoldedNorm&>(*model->slot("bn"));
  const Tensor weight = folded.operands(layer.weight(), {}, evaluation).weight.value();
  for (std::int64_t i = 0; i < weight.size(); ++i) {
    const auto c = static_cast<std::size_t>(i / (weight.size() / kChannels));
    const float limit = 127.5F * layer.weight_quantizer()->host_scale()[c];
    EXPECT_LE(std::abs(weight.data<float>()[i]), limit);
  }
}

// Stops the run after some step, as a signal would.
class StopAt : public TrainerCallback {
 public:
  StopAt(std::int64_t step, std::atomic<bool>& stop) : step_(step), stop_(stop) {}
  void on_step_end(const StepReport& report) override {
    if (report.step == step_) stop_ = true;
  }

 private:
  std::int64_t step_;
  std::atomic<bool>& stop_;
};

Dataset images() {
  Tensor labels = Tensor::zeros({12}, DType::kI64);
  for (std::int64_t i = 0; i < 12; ++i) labels.data<std::int64_t>()[i] = i % 3;
  return {random_tensor({12, 6, 6, 2}, 5, DType::kF32), labels, 3};
}

// Two epochs of three steps, in one process or stopped after `stop_after` steps and continued.
std::map<std::string, std::vector<double>> train(BatchNormFold mode, std::int64_t stop_after) {
  const testing::TemporaryFolder folder;
  const LoaderOptions loader{
      .batch_size = 4, .shuffle = true, .seed = 1, .normalization = {}, .augment = {}};
  TrainerOptions options;
  options.epochs = 2;
  options.seed = 1;
  options.lr_schedule.base_lr = 0.05;
  options.run_dir = folder.path();
  options.checkpoint_every_steps = 1;
  for (bool continued = false;; continued = true) {
    const auto model = quantized_model(mode);
    Sgd optimizer(model->named_parameters(), {.momentum = 0.9});
    ScheduleCallback schedule(*model, {});
    ReestimateCallback reestimation(*model, images(), loader, options.epochs, 2);
    std::atomic<bool> stop = false;
    StopAt stop_at(continued ? -1 : stop_after, stop);
    Trainer trainer(*model, optimizer, images(), images(), loader, options,
                    {&schedule, &reestimation, &stop_at});
    if (continued) {
      const auto last = folder / "last.safetensors";
      trainer.restore(load_checkpoint(last), last.string());
    }
    if (trainer.run(stop).interrupted) continue;
    std::map<std::string, std::vector<double>> state;
    for (const NamedTensor& t : load_checkpoint(folder / "last.safetensors").tensors) {
      state[t.name] = values(t.tensor);
    }
    return state;
  }
}

TEST_P(Reestimation, ARunThatWasStoppedEndsWithTheSameBits) {
  const auto expected = train(GetParam(), -1);
  EXPECT_EQ(expected.at("bn.num_batches_tracked"), std::vector<double>{6 + 2});
  for (const std::int64_t stop_after : {1, 5, 6}) {
    EXPECT_EQ(train(GetParam(), stop_after), expected) << "stopped after step " << stop_after;
  }
}

}  // namespace
}  // namespace steelyard::qat::reestimate_test
