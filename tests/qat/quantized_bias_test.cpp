// The bias of a quantized layer beside the scales and the int32 sums of its products.
#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/layers/qat_linear.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using kernels::Activation;
using testing::random_tensor;

QatLinear linear_layer(const Tensor& weight, const Tensor& bias, const QConfig& config) {
  return QatLinear(LinearOptions{.in_features = weight.dim(1), .out_features = weight.dim(0)},
                   weight, bias, config, Activation::kNone);
}

TEST(QuantizedLinear, HasABiasForEachOutput) {
  const auto layer = [](Shape bias) {
    linear_layer(Tensor::zeros({3, 4}), Tensor::zeros(std::move(bias)), default_w8a8());
  };
  EXPECT_EQ(testing::message_of<std::invalid_argument>([&] { layer({2}); }),
            "[quantized_layer] expected bias [3], got [2]");
  EXPECT_THROW(layer({3, 1}), std::invalid_argument);
}

// docs/numerics.md: s = 1 on a dead channel would round its bias to a step of s_x.
TEST(QuantizedLinear, DeadChannelKeepsItsBias) {
  QatLinear layer = linear_layer(Tensor::from({0.0F, 0.0F, 1.0F, -1.0F}, {2, 2}),
                                 Tensor::from({0.0371F, 0.5F}, {2}), default_w8a8());
  ActivationQuantizer input(*default_w8a8().activations);
  ForwardContext training{.training = true};
  layer.output_quantizer()->set_quantizing(false);
  const Variable x = input.forward(Variable(Tensor::from({0.0F, 25.5F}, {1, 2})), training);
  const Variable y = layer.forward(x, training);
  EXPECT_NEAR(y.value().span<float>()[0], 0.0371, 1e-6);
}

TEST(QuantizedLinear, ABiasFarAboveTheWeightsStillFits) {
  QatLinear layer = linear_layer(Tensor::from({1e-12F, -1e-12F}, {1, 2}),
                                 Tensor::from({1000.0F}, {1}), default_w8a8());
  ActivationQuantizer input(*default_w8a8().activations);
  ForwardContext training{.training = true};
  layer.output_quantizer()->set_quantizing(false);
  const Variable y = layer.forward(
      input.forward(Variable(Tensor::from({0.0F, 1e-3F}, {1, 2})), training), training);
  EXPECT_NEAR(y.value().item(), 1000.0, 1e-3);
}

// Beside 60,000 products of the largest codes int32 has room for a bias of 6,311: 70,000 would be
// -62,622 if the sum wrapped.
TEST(QuantizedLinear, ABiasThatLacksRoomBesideItsProductsIsAFault) {
  Rng rng(1);
  const Linear linear({.in_features = 60000, .out_features = 3}, rng);
  for (float& w : linear.weight().value().span<float>()) w = 1;
  const auto bias = linear.bias().value().span<float>();
  bias[0] = 0;
  bias[1] = 6310;
  bias[2] = 10000;
  QConfig config = default_w8a8();
  config.activations.reset();
  QatLinear layer(linear, config);
  layer.add_input_quantizer(*default_w8a8().activations);
  for (const bool training : {true, false}) {
    ForwardContext context{.training = training};
    const auto y =
        testing::values(layer.forward(Variable(Tensor::full({1, 60000}, 1.0)), context).value());
    EXPECT_NEAR(y[0], 60000, 0.1);
    EXPECT_NEAR(y[1], 66310, 0.1);
    const Faults faults = layer.weight_quantizer()->take_faults();
    ASSERT_TRUE(faults.overflow);
    EXPECT_EQ(faults.overflow->channel, 2);
    EXPECT_EQ(faults.overflow->bias, 10000);
    EXPECT_NEAR(faults.overflow->limit, 6311.06, 0.01);
    EXPECT_NEAR(y[2], 60000 + faults.overflow->limit, 0.1) << "cut, not wrapped";
    EXPECT_FALSE(layer.weight_quantizer()->take_faults().overflow);
  }
}

// Scales leave room for the bias after observers froze, too: 0.5 -> 5 became 1.
TEST(QuantizedLinear, ABiasThatGrowsAfterObserversFrozeStillFits) {
  for (const Learning learning : {Learning::kNothing, Learning::kScale}) {
    for (const bool per_channel : {false, true}) {
      Rng rng(1);
      const Linear linear({.in_features = 2, .out_features = 1}, rng);
      for (float& w : linear.weight().value().span<float>()) w = 1e-12F;
      linear.bias().value().fill(0.5);
      QConfig config = default_w8a8();
      config.activations.reset();
      config.weights->learning = learning;
      if (!per_channel) config.weights->scheme.granularity = kernels::Granularity::kTensor;
      QatLinear layer(linear, config);
      layer.add_input_quantizer(*default_w8a8().activations);
      const Variable x(Tensor::full({1, 2}, 1.0));
      const auto y = [&](bool training) {
        ForwardContext context{.training = training};
        return layer.forward(x, context).value().item();
      };
      EXPECT_NEAR(y(true), 0.5, 1e-6);
      for (const auto& q : named_quantizers(layer)) q.quantizer->set_observing(false);
      const auto scale = [&] { return layer.weight_quantizer()->host_scale()[0]; };
      const float frozen = scale();
      EXPECT_NEAR(y(true), 0.5, 1e-6);
      layer.bias().value().fill(0.75);  // beside two products int32 holds it as it is
      EXPECT_NEAR(y(true), 0.75, 1e-6);
      EXPECT_EQ(scale(), frozen);
      layer.bias().value().fill(5);
      EXPECT_NEAR(y(false), 5, 1e-5);
      EXPECT_EQ(scale(), frozen) << "evaluation keeps nothing";
      EXPECT_NEAR(y(true), 5, 1e-5);
      EXPECT_NEAR(scale() / frozen, 10, 1e-5);
      layer.bias().value().fill(0.5);
      EXPECT_NEAR(y(true), 0.5, 1e-6);
      EXPECT_FALSE(layer.weight_quantizer()->take_faults().overflow);
    }
  }
}

}  // namespace
}  // namespace steelyard::qat
