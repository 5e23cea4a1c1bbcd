// The folding modes as prepare() builds them, against plain float layers and against the deployed
// form; channels that could divide by zero.
#include <gtest/gtest.h>

#include "steelyard/framework/autograd/tape_trace.h"
#include "steelyard/qat/forms/fold.h"
#include "steelyard/qat/layers/qat_conv2d.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/qat/fold_support.h"

namespace steelyard::qat {
namespace {

using namespace testing_fold;
using testing::all_close;

class FoldingModes : public ::testing::TestWithParam<Case> {};
// The modes that fold: their evaluation is a deployed layer's.
class DeployedModes : public FoldingModes {};

INSTANTIATE_TEST_SUITE_P(Folding, DeployedModes, ::testing::ValuesIn(kFolding), name_of);
INSTANTIATE_TEST_SUITE_P(Folding, FoldingModes, ::testing::ValuesIn(kFolding), name_of);
INSTANTIATE_TEST_SUITE_P(Unfolded, FoldingModes, ::testing::ValuesIn(kUnfolded), name_of);

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
        c, layer.weight_quantizer()->host_scale()[static_cast<std::size_t>(c)], 0);
  }
  deployed.output_quantizer()->set_qparams(0, layer.output_quantizer()->host_scale()[0],
                                           layer.output_quantizer()->host_zero_point()[0]);
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
            config.groups[0].config.weights->scheme.granularity = kernels::Granularity::kTensor;
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
            EXPECT_EQ(q.quantizer->take_faults().non_finite, 0) << degenerate.name << q.name;
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

}  // namespace
}  // namespace steelyard::qat
