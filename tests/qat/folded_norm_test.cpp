// The folding modes as prepare() builds them, against plain float layers and against the deployed
// form.
#include "qat/folded_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "framework/checkpoint.h"
#include "framework/tape_trace.h"
#include "layers/activations.h"
#include "layers/conv2d.h"
#include "layers/residual.h"
#include "layers/sequential.h"
#include "qat/fold.h"
#include "qat/prepare.h"
#include "qat/qat_conv2d.h"
#include "qat/schedule.h"
#include "tests/support/gradcheck.h"

namespace steelyard::qat {
namespace {

using testing::all_close;
using testing::random_tensor;
using testing::values;

constexpr std::int64_t kChannels = 5;

struct Case {
  std::string name;
  BatchNormFold mode;
  bool bias = false;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class FoldingModes : public ::testing::TestWithParam<Case> {};

// The modes that fold: their evaluation is a deployed layer's.
class DeployedModes : public FoldingModes {};

const Case kFolding[] = {
    {"batch_corrected", BatchNormFold::kBatchCorrected},
    {"batch_corrected_bias", BatchNormFold::kBatchCorrected, true},
    {"one_convolution", BatchNormFold::kOneConvolution},
    {"one_convolution_bias", BatchNormFold::kOneConvolution, true},
};
const Case kUnfolded[] = {{"none", BatchNormFold::kNone},
                          {"none_bias", BatchNormFold::kNone, true}};

std::string name_of(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Folding, DeployedModes, ::testing::ValuesIn(kFolding), name_of);
INSTANTIATE_TEST_SUITE_P(Folding, FoldingModes, ::testing::ValuesIn(kFolding), name_of);
INSTANTIATE_TEST_SUITE_P(Unfolded, FoldingModes, ::testing::ValuesIn(kUnfolded), name_of);

std::shared_ptr<Conv2d> conv3x3(std::int64_t in, bool bias) {
  Rng rng(3);
  Conv2dOptions options;
  options.in_channels = in;
  options.out_channels = kChannels;
  options.kernel_size = {3, 3};
  options.padding = {1, 1};
  options.bias = bias;
  return std::make_shared<Conv2d>(options, rng);
}

// gamma of both signs and tiny, statistics away from their first values.
std::shared_ptr<BatchNorm2d> norm() {
  auto bn = std::make_shared<BatchNorm2d>(BatchNorm2dOptions{.channels = kChannels});
  bn->weight().value().copy_from(Tensor::from({1.2F, -0.8F, 0.05F, 1e-5F, 0.6F}, {kChannels}));
  bn->bias().value().copy_from(random_tensor({kChannels}, 5, DType::kF32));
  bn->running_mean().copy_from(random_tensor({kChannels}, 6, DType::kF32));
  bn->running_var().copy_from(Tensor::from({0.2F, 0.9F, 2.0F, 0.5F, 1.5F}, {kChannels}));
  return bn;
}

std::shared_ptr<Sequential> chain(bool bias) {
  return std::make_shared<Sequential>(Sequential::NamedChildren{
      {"conv", conv3x3(2, bias)}, {"bn", norm()}, {"relu", std::make_shared<ReLU>()}});
}

QuantizeConfig config_for(BatchNormFold mode) {
  QuantizeConfig config;
  config.groups.push_back({{"Conv2d"}, default_w8a8()});
  config.bn_fold = mode;
  return config;
}

std::shared_ptr<Module> prepared(std::shared_ptr<Module> model, BatchNormFold mode) {
  return prepare(std::move(model), config_for(mode)).model;
}

BatchNorm2d& norm_of(Module& model, const std::string& path = "bn") {
  return dynamic_cast<FoldedNorm&>(*model.slot(path)).norm();
}

void set_quantizing(Module& model, bool on) {
  for (const auto& q : named_quantizers(model)) q.quantizer->set_quantizing(on);
}

Variable input(std::uint64_t seed = 1) {
  return Variable(random_tensor({4, 6, 6, 2}, seed, DType::kF32), true);
}

std::map<std::string, Tensor> state_of(const Module& model) {
  std::map<std::string, Tensor> state;
  for (const NamedTensor& t : module_state(model)) state[t.name] = t.tensor.clone();
  return state;
}

void expect_finite(const std::string& what, const Tensor& tensor) {
  for (const double v : values(tensor)) ASSERT_TRUE(std::isfinite(v)) << what;
}

// Output, input gradient, then gradients and buffers by name.
std::map<std::string, Tensor> training_step(Module& model, const Variable& x) {
  ForwardContext training{.training = true};
  const Variable y = model.forward(x, training);
  y.backward(random_tensor(y.shape(), 9, DType::kF32));
  std::map<std::string, Tensor> results{{"output", y.value()}, {"input", x.grad().clone()}};
  for (const auto& p : model.named_parameters()) {
    if (p.variable.grad().defined()) results["grad " + p.name] = p.variable.grad().clone();
  }
  for (const auto& b : model.named_buffers()) results[b.name] = b.tensor.clone();
  return results;
}

// Without quantizers every mode is conv, batch norm, relu: values, gradients and statistics.
TEST_P(FoldingModes, WithoutQuantizersIsThePlainFloatChain) {
  for (const bool frozen : {false, true}) {
    const auto plain = chain(GetParam().bias);
    dynamic_cast<BatchNorm2d&>(*plain->slot("bn")).set_frozen(frozen);
    const auto expected = training_step(*plain, input());
    const auto model = prepared(chain(GetParam().bias), GetParam().mode);
    set_quantizing(*model, false);
    norm_of(*model).set_frozen(frozen);
    const auto got = training_step(*model, input());
    for (const auto& [name, tensor] : expected) {
      // The bias of a convolution before batch statistics has no effect, hence no gradient.
      if (name == "grad conv.bias" && !frozen) continue;
      ASSERT_TRUE(got.contains(name)) << name;
      EXPECT_TRUE(all_close(got.at(name), tensor, 1e-4, 2e-5)) << name << " frozen " << frozen;
    }
  }
}

TEST_P(FoldingModes, EvaluationWithoutQuantizersIsThePlainFloatChain) {
  ForwardContext evaluation;
  const auto model = prepared(chain(GetParam().bias), GetParam().mode);
  set_quantizing(*model, false);
  EXPECT_TRUE(all_close(model->forward(input(), evaluation).value(),
                        chain(GetParam().bias)->forward(input(), evaluation).value(), 1e-5, 1e-6));
}

// A quantized layer with the weights and bias of fold_batch_norm() and the trained quantizers.
TEST_P(DeployedModes, EvaluationIsTheDeployedProduct) {
  const auto model = prepared(chain(GetParam().bias), GetParam().mode);
  ForwardContext training{.training = true}, evaluation;
  for (std::uint64_t step = 0; step < 3; ++step) model->forward(input(step), training);

  auto& layer = dynamic_cast<QatConv2d&>(*model->slot("conv"));
  const Tensor bias = layer.bias().defined() ? layer.bias().value() : Tensor();
  const FoldedWeights folded = fold_batch_norm(layer.weight().value(), bias, norm_of(*model));
  QatConv2d deployed(conv3x3(2, true)->options(), folded.weight, folded.bias, default_w8a8(),
                     kernels::Activation::kRelu);
  for (std::int64_t c = 0; c < kChannels; ++c) {
    deployed.weight_quantizer()->set_qparams(
        c, layer.weight_quantizer()->scale()[static_cast<std::size_t>(c)], 0);
  }
  deployed.output_quantizer()->set_qparams(0, layer.output_quantizer()->scale()[0],
                                           layer.output_quantizer()->zero_point()[0]);
  auto& input_quantizer = dynamic_cast<FakeQuantize&>(*model->slot("input_quantizer"));
  const Variable x = input(7);
  const auto expected =
      quantized(deployed.forward(input_quantizer.forward(x, evaluation), evaluation));
  const auto got = quantized(model->forward(x, evaluation));
  ASSERT_TRUE(expected && got);
  EXPECT_EQ(values(got->codes), values(expected->codes));
}

// What export reads: one product of the input with computed weight and bias.
TEST_P(DeployedModes, EvaluationRecordsOneProduct) {
  const auto model = prepared(chain(GetParam().bias), GetParam().mode);
  ForwardContext training{.training = true}, evaluation;
  model->forward(input(), training);
  const TapeTrace trace;
  model->forward(input(), evaluation);
  std::vector<std::string> names;
  for (const TracedOperation& operation : trace.operations()) {
    names.push_back(operation.function->name());
    if (names.back() == "quantized_conv2d") {
      EXPECT_EQ(operation.inputs.size(), 3U);
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"fake_quantize", "fold_bias", "fold_weight",
                                             "quantized_conv2d"}));
}

TEST_P(FoldingModes, QuantizedTrainingStaysNearTheFloatChain) {
  const auto expected = training_step(*chain(GetParam().bias), input());
  const auto got = training_step(*prepared(chain(GetParam().bias), GetParam().mode), input());
  for (const auto& [name, tensor] : expected) {
    if (name == "grad conv.bias" || name == "bn.num_batches_tracked") continue;
    double amax = 0;
    for (const double v : values(tensor)) amax = std::max(amax, std::abs(v));
    EXPECT_TRUE(all_close(got.at(name), tensor, 0, 0.05 * amax)) << name;
  }
}

struct Degenerate {
  std::string name;
  std::function<void(Conv2d&, BatchNorm2d&)> make;
};

const std::vector<Degenerate>& degenerate_cases() {
  static const std::vector<Degenerate> all{
      {"zero gamma", [](Conv2d&, BatchNorm2d& bn) { bn.weight().value().data<float>()[1] = 0; }},
      {"all gammas zero", [](Conv2d&, BatchNorm2d& bn) { bn.weight().value().fill(0); }},
      {"negative zero gamma",
       [](Conv2d&, BatchNorm2d& bn) { bn.weight().value().data<float>()[1] = -0.0F; }},
      {"denormal gamma",
       [](Conv2d&, BatchNorm2d& bn) { bn.weight().value().data<float>()[1] = 1e-40F; }},
      {"negative gamma", [](Conv2d&, BatchNorm2d& bn) { bn.weight().value().fill(-0.7); }},
      {"dead channel",
       [](Conv2d& conv, BatchNorm2d&) {
         for (int i = 0; i < 18; ++i) conv.weight().value().data<float>()[18 + i] = 0;
       }},
      {"dead layer", [](Conv2d& conv, BatchNorm2d&) { conv.weight().value().fill(0); }},
      {"variance 1e-30",
       [](Conv2d&, BatchNorm2d& bn) { bn.running_var().data<float>()[1] = 1e-30F; }},
      {"variance 0", [](Conv2d&, BatchNorm2d& bn) { bn.running_var().fill(0); }},
      {"variance 1e30",
       [](Conv2d&, BatchNorm2d& bn) { bn.running_var().data<float>()[1] = 1e30F; }},
      {"variance 0, gamma 0, dead",
       [](Conv2d& conv, BatchNorm2d& bn) {
         conv.weight().value().fill(0);
         bn.weight().value().fill(0);
         bn.running_var().fill(0);
       }},
  };
  return all;
}

// pytorch#85744: NaN at gamma 0.
TEST_P(FoldingModes, DegenerateChannelsStayFinite) {
  for (const Degenerate& degenerate : degenerate_cases()) {
    for (const bool frozen : {false, true}) {
      for (const bool quantizing : {false, true}) {
        for (const bool per_channel : {true, false}) {
          const auto float_chain = chain(GetParam().bias);
          auto& conv = dynamic_cast<Conv2d&>(*float_chain->slot("conv"));
          auto& bn = dynamic_cast<BatchNorm2d&>(*float_chain->slot("bn"));
          degenerate.make(conv, bn);
          QuantizeConfig config = config_for(GetParam().mode);
          if (!per_channel) {
            config.groups[0].config.weights->scheme.strategy = observers::Strategy::kTensor;
          }
          const auto model = prepare(float_chain, config).model;
          set_quantizing(*model, quantizing);
          norm_of(*model).set_frozen(frozen);
          for (int step = 0; step < 2; ++step) {
            for (const auto& [name, tensor] : training_step(*model, input())) {
              expect_finite(degenerate.name + ": " + name, tensor);
            }
          }
          ForwardContext evaluation;
          expect_finite(degenerate.name, model->forward(input(), evaluation).value());
          for (const auto& q : named_quantizers(*model)) {
            EXPECT_EQ(q.quantizer->take_non_finite_count(), 0) << degenerate.name << q.name;
          }
        }
      }
    }
  }
}

// A channel whose gamma is 0 must be able to come back: its gradient is that of the float chain.
TEST_P(FoldingModes, AZeroGammaStillLearns) {
  const auto make = [&] {
    const auto model = chain(GetParam().bias);
    auto& bn = dynamic_cast<BatchNorm2d&>(*model->slot("bn"));
    bn.weight().value().data<float>()[1] = 0;
    bn.bias().value().data<float>()[1] = 0.8F;  // the relu lets it pass
    return model;
  };
  const double expected = values(training_step(*make(), input()).at("grad bn.weight"))[1];
  const auto model = prepared(make(), GetParam().mode);
  const double got = values(training_step(*model, input()).at("grad bn.weight"))[1];
  ASSERT_GT(std::abs(expected), 0.1);
  EXPECT_NEAR(got, expected, 0.05 * std::abs(expected));
}

TEST_P(FoldingModes, ADeadChannelGivesBeta) {
  const auto float_chain = chain(GetParam().bias);
  auto& conv = dynamic_cast<Conv2d&>(*float_chain->slot("conv"));
  auto& bn = dynamic_cast<BatchNorm2d&>(*float_chain->slot("bn"));
  for (int i = 0; i < 18; ++i) conv.weight().value().data<float>()[18 + i] = 0;
  if (GetParam().bias) conv.bias().value().data<float>()[1] = 0;
  bn.bias().value().data<float>()[1] = 0.4F;
  bn.running_mean().data<float>()[1] = 0;
  const auto model = prepared(float_chain, GetParam().mode);
  dynamic_cast<QuantizedLayer&>(*model->slot("conv")).output_quantizer()->set_quantizing(false);
  ForwardContext training{.training = true}, evaluation;
  EXPECT_NEAR(values(model->forward(input(), training).value())[1], 0.4, 1e-5);
  EXPECT_NEAR(values(model->forward(input(), evaluation).value())[1], 0.4, 1e-5);
}

TEST_P(FoldingModes, FreezingSwitchesTheCorrectionOff) {
  const auto model = prepared(chain(GetParam().bias), GetParam().mode);
  ScheduleCallback schedule(*model, {.freeze_observers = 1, .freeze_batch_norm = 1});
  ForwardContext training{.training = true}, evaluation;
  schedule.on_epoch_begin(0);
  model->forward(input(1), training);
  EXPECT_EQ(norm_of(*model).num_batches_tracked().item(), 1);
  schedule.on_epoch_begin(1);
  const auto before = state_of(*model);
  const Tensor trained = model->forward(input(2), training).value();
  EXPECT_EQ(values(trained), values(model->forward(input(2), evaluation).value()));
  for (const auto& [name, tensor] : state_of(*model)) {
    EXPECT_EQ(values(tensor), values(before.at(name))) << name;
  }
}

// ao#2138: after freezing, nothing that evaluation sees may change what is deployed.
TEST_P(FoldingModes, EvaluationNeverChangesState) {
  const auto model = prepared(chain(GetParam().bias), GetParam().mode);
  ScheduleCallback schedule(*model, {.freeze_observers = 1});
  ForwardContext training{.training = true}, evaluation;
  for (const std::int64_t epoch : {0, 1}) {
    schedule.on_epoch_begin(epoch);
    model->forward(input(1), training);
    const auto before = state_of(*model);
    Variable x = input(2);
    for (float& v : x.value().span<float>()) v *= 50;
    for (int i = 0; i < 3; ++i) model->forward(x, evaluation);
    for (const auto& [name, tensor] : state_of(*model)) {
      EXPECT_EQ(values(tensor), values(before.at(name))) << name;
    }
  }
}

// A frozen range does not follow, in training either.
TEST_P(FoldingModes, FrozenRangesStayInTraining) {
  const auto model = prepared(chain(GetParam().bias), GetParam().mode);
  ScheduleCallback schedule(*model, {.freeze_observers = 1});
  ForwardContext training{.training = true};
  schedule.on_epoch_begin(0);
  model->forward(input(1), training);
  schedule.on_epoch_begin(1);
  std::vector<std::vector<float>> before, after;
  const auto scales = [&](std::vector<std::vector<float>>& to) {
    for (const auto& q : named_quantizers(*model)) {
      to.emplace_back(q.quantizer->scale().begin(), q.quantizer->scale().end());
    }
  };
  scales(before);
  model->forward(input(2), training);
  scales(after);
  EXPECT_EQ(before, after);
}

// pytorch#50868: a checkpoint of the float model keeps its names, and so does the quantized one.
TEST_P(FoldingModes, NamesAreThoseOfTheFloatModel) {
  const auto float_state = state_of(*chain(GetParam().bias));
  const auto model = prepared(chain(GetParam().bias), GetParam().mode);
  const auto state = state_of(*model);
  for (const auto& [name, tensor] : float_state) {
    ASSERT_TRUE(state.contains(name)) << name;
    EXPECT_EQ(state.at(name).shape(), tensor.shape());
  }
  std::vector<std::string> names;
  for (const auto& p : model->named_parameters()) names.push_back(p.name);
  std::vector<std::string> float_names;
  for (const auto& p : chain(GetParam().bias)->named_parameters()) float_names.push_back(p.name);
  EXPECT_EQ(names, float_names);
}

TEST_P(FoldingModes, SavedStateContinuesWithTheSameBits) {
  const auto trained = prepared(chain(GetParam().bias), GetParam().mode);
  training_step(*trained, input(1));
  const auto fresh = prepared(chain(GetParam().bias), GetParam().mode);
  for (const auto& p : fresh->named_parameters()) p.variable.value().fill(0.5);
  load_into(*fresh, module_state(*trained), "state");
  clear_gradients(*trained);
  const auto expected = training_step(*trained, input(2));
  const auto got = training_step(*fresh, input(2));
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    EXPECT_EQ(values(got.at(name)), values(tensor)) << name;
  }
}

TEST(FoldedNorm, RefusesAModeThatLeavesNoNorm) {
  EXPECT_EQ(testing::message_of<std::invalid_argument>(
                [] { FoldedNorm(norm(), BatchNormFold::kFrozen); }),
            "[FoldedNorm] expected a mode that keeps the norm, got frozen");
}

// Both branches of a residual block, named as in torchvision.
TEST_P(FoldingModes, PatternsInsideResidualsAreRecognised) {
  const auto make = [&] {
    Rng rng(1);
    const auto main = std::make_shared<Sequential>(
        Sequential::NamedChildren{{"conv1", conv3x3(2, GetParam().bias)},
                                  {"bn1", norm()},
                                  {"relu1", std::make_shared<ReLU>()},
                                  {"conv2", conv3x3(kChannels, GetParam().bias)},
                                  {"bn2", norm()}});
    const auto shortcut =
        std::make_shared<Sequential>(Sequential::Children{conv3x3(2, GetParam().bias), norm()});
    return std::make_shared<Sequential>(Sequential::NamedChildren{
        {"block", std::make_shared<Residual>(main, shortcut, std::make_shared<ReLU>())}});
  };
  const PreparedModel result = prepare(make(), config_for(GetParam().mode));
  for (const char* path : {"block.bn1", "block.bn2", "block.downsample.1"}) {
    EXPECT_NO_THROW(norm_of(*result.model, path)) << path;
    EXPECT_NE(to_string(result.plan).find(path), std::string::npos) << path;
  }
  const auto float_state = state_of(*make());
  const auto state = state_of(*result.model);
  for (const auto& [name, tensor] : float_state) EXPECT_TRUE(state.contains(name)) << name;

  set_quantizing(*result.model, false);
  const auto expected = training_step(*make(), input());
  const auto got = training_step(*result.model, input());
  for (const char* name : {"output", "input", "grad block.conv1.weight", "grad block.bn1.weight",
                           "grad block.downsample.0.weight", "block.bn2.running_var"}) {
    EXPECT_TRUE(all_close(got.at(name), expected.at(name), 1e-3, 1e-4)) << name;
  }
}

// pytorch#115715: a standalone batch norm left in training mode. Here the mode is the context's.
TEST(StandaloneBatchNorm, FollowsTheContextAndTheSchedule) {
  const auto model = prepare(std::make_shared<Sequential>(Sequential::NamedChildren{
                                 {"bn", norm()}, {"conv", conv3x3(kChannels, false)}}),
                             config_for(BatchNormFold::kOneConvolution))
                         .model;
  ScheduleCallback schedule(*model, {.freeze_batch_norm = 1});
  ForwardContext training{.training = true}, evaluation;
  const auto& bn = dynamic_cast<BatchNorm2d&>(*model->slot("bn"));
  const Variable x(random_tensor({4, 6, 6, kChannels}, 1, DType::kF32));
  schedule.on_epoch_begin(0);
  model->forward(x, training);
  const auto moved = values(bn.running_mean());
  EXPECT_NE(moved, values(norm()->running_mean()));
  model->forward(x, evaluation);
  schedule.on_epoch_begin(1);
  model->forward(x, training);
  EXPECT_EQ(values(bn.running_mean()), moved);
}

}  // namespace
}  // namespace steelyard::qat
