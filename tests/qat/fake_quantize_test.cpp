#include "qat/fake_quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "framework/checkpoint.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

const QuantizerConfig kActivations = *default_w8a8().activations;
const QuantizerConfig kWeights = *default_w8a8().weights;

TEST(FakeQuantize, ValuesAndGradientsInClosedForm) {
  FakeQuantize quantizer(kActivations, QuantizerRole::kActivation);
  quantizer.set_qparams(0, 0.5F, 10);
  // u = rint(x / 0.5) + 10 must lie in [0, 255]: x in [-5.25, 122.75].
  const Variable x(Tensor::from({-6.0F, -5.25F, -5.0F, 0.25F, 0.75F, 122.5F, 122.7F, 123.0F}, {8}),
                   true);
  ForwardContext evaluation;
  const Variable y = quantizer.forward(x, evaluation);
  EXPECT_EQ(testing::values(y.value()),
            (std::vector<double>{-5, -5, -5, 0, 1, 122.5, 122.5, 122.5}));
  const auto codes = quantized(y);
  ASSERT_TRUE(codes);
  EXPECT_EQ(testing::values(codes->codes), (std::vector<double>{0, 0, 0, 10, 12, 255, 255, 255}));
  y.backward(Tensor::from({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F, 7.0F, 8.0F}, {8}));
  EXPECT_EQ(testing::values(x.grad()), (std::vector<double>{0, 2, 3, 4, 5, 6, 7, 0}));
}

TEST(FakeQuantize, ObservesInTrainingOnly) {
  FakeQuantize quantizer(kActivations, QuantizerRole::kActivation);
  ForwardContext training{.training = true}, evaluation;
  quantizer.forward(Variable(Tensor::from({0.0F, 2.55F}, {2})), training);
  EXPECT_EQ(quantizer.host_scale()[0], static_cast<float>(static_cast<double>(2.55F) / 255));
  const float scale = quantizer.host_scale()[0];
  quantizer.forward(Variable(Tensor::from({0.0F, 100.0F}, {2})), evaluation);
  EXPECT_EQ(quantizer.host_scale()[0], scale);
  quantizer.set_observing(false);
  quantizer.forward(Variable(Tensor::from({0.0F, 100.0F}, {2})), training);
  EXPECT_EQ(quantizer.host_scale()[0], scale);
}

// Checkpoints of averages that began at their first step have no count of steps.
TEST(FakeQuantize, AnAverageThatWasNotCountedGoesOnWithItsConstant) {
  ForwardContext training{.training = true};
  QuantizerConfig config = kActivations;
  config.observer = {.type = "moving_average", .averaging_constant = 0.25};
  FakeQuantize counted(config, QuantizerRole::kActivation);
  counted.forward(Variable(Tensor::from({0.0F, 255.0F}, {2})), training);
  std::vector<NamedTensor> state = module_state(counted);
  const auto is_count = [](const NamedTensor& t) {
    return t.name == "observer_num_batches_tracked";
  };
  ASSERT_EQ(std::erase_if(state, is_count), 1U);
  FakeQuantize loaded(config, QuantizerRole::kActivation);
  load_into(loaded, state, "of an older version");
  const Variable next(Tensor::from({0.0F, 3 * 255.0F}, {2}));
  counted.forward(next, training);
  loaded.forward(next, training);
  EXPECT_EQ(counted.host_scale()[0], 2.0F);
  EXPECT_EQ(loaded.host_scale()[0], 1.5F);
}

// Observers that look at rounding errors, too.
TEST(FakeQuantize, ChangesItsWidthAsIfMadeWithIt) {
  ForwardContext training{.training = true};
  const Tensor first = testing::random_tensor({64}, 1, DType::kF32);
  const Tensor second = testing::random_tensor({64}, 2, DType::kF32);
  for (const char* observer : {"min_max", "moving_average", "histogram", "mse", "entropy"}) {
    QuantizerConfig config = kActivations;
    config.observer.type = observer;
    config.scheme.bits = 3;
    FakeQuantize narrow(config, QuantizerRole::kActivation);
    FakeQuantize changed(config, QuantizerRole::kActivation);
    changed.set_bits(8);
    EXPECT_EQ(changed.code_range().qmax, 255);
    changed.forward(Variable(first), training);
    const float lo = -changed.host_scale()[0] * static_cast<float>(changed.host_zero_point()[0]);
    const float span = changed.host_scale()[0] * 255;
    changed.set_bits(3);
    EXPECT_EQ(changed.code_range().qmax, 7);
    EXPECT_NEAR(changed.host_scale()[0] * 7, span, 1e-5) << "the same range";
    EXPECT_NEAR(-changed.host_scale()[0] * static_cast<float>(changed.host_zero_point()[0]), lo,
                span / 14);
    if (config.observer.type == "mse") continue;  // its average remembers ranges of 8 bits
    changed.forward(Variable(second), training);
    narrow.forward(Variable(first), training);
    narrow.forward(Variable(second), training);
    EXPECT_EQ(changed.host_scale()[0], narrow.host_scale()[0]) << observer;
    EXPECT_EQ(changed.host_zero_point()[0], narrow.host_zero_point()[0]) << observer;
  }
}

TEST(FakeQuantize, LearnsAnewAfterAChangeOfWidth) {
  ForwardContext training{.training = true};
  QuantizerConfig config = kActivations;
  config.learning = Learning::kScaleAndZeroPoint;
  FakeQuantize quantizer(config, QuantizerRole::kActivation);
  quantizer.forward(Variable(Tensor::from({-1.0F, 2.0F}, {2})), training);
  quantizer.set_bits(4);
  EXPECT_TRUE(quantizer.observes(training));
  quantizer.forward(Variable(Tensor::from({-1.0F, 4.0F}, {2})), training);
  EXPECT_FALSE(quantizer.observes(training));
  EXPECT_NEAR(quantizer.host_scale()[0], 5.0 / 15, 1e-2) << "of the new values alone";
}

TEST(FakeQuantize, SwitchedOffItHandsOutItsInput) {
  FakeQuantize quantizer(kActivations, QuantizerRole::kActivation);
  quantizer.set_quantizing(false);
  ForwardContext training{.training = true};
  const Variable x(Tensor::from({0.1F, 0.2F}, {2}));
  EXPECT_EQ(quantizer.forward(x, training).node(), x.node());
  EXPECT_NE(quantizer.host_scale()[0], 1.0F);  // it still observes
}

TEST(FakeQuantize, RefusesToQuantizeBeforeItObserved) {
  FakeQuantize quantizer(kActivations, QuantizerRole::kActivation);
  ForwardContext evaluation;
  EXPECT_THROW(quantizer.forward(Variable(Tensor::zeros({2})), evaluation), std::logic_error);
}

TEST(FakeQuantize, CountsNonFiniteValues) {
  FakeQuantize quantizer(kActivations, QuantizerRole::kActivation);
  ForwardContext training{.training = true};
  quantizer.forward(Variable(Tensor::from({1.0F, 2.0F}, {2})), training);
  EXPECT_EQ(quantizer.take_non_finite_count(), 0);
  quantizer.forward(Variable(Tensor::from({1.0F, std::nanf("")}, {2})), training);
  EXPECT_GT(quantizer.take_non_finite_count(), 0);
  EXPECT_EQ(quantizer.take_non_finite_count(), 0);
}

TEST(FakeQuantize, PerChannelScalesFollowEachChannel) {
  FakeQuantize quantizer(kWeights, QuantizerRole::kWeight, 2);
  ForwardContext training{.training = true};
  const Variable w(Tensor::from({1.27F, -0.5F, 0.0F, -25.4F}, {2, 2}), true);
  const Variable y = quantizer.forward(w, training);
  EXPECT_FLOAT_EQ(quantizer.host_scale()[0], 0.01F);
  EXPECT_FLOAT_EQ(quantizer.host_scale()[1], 0.2F);
  EXPECT_TRUE(testing::all_close(y.value(), w.value(), 1e-6, 1e-6));
  y.backward(Tensor::full({2, 2}, 1.0));
  EXPECT_EQ(testing::values(w.grad()), (std::vector<double>{1, 1, 1, 1}));
}

// A running extreme of weights would never follow them when they shrink.
TEST(FakeQuantize, WeightRangesFollowTheCurrentWeights) {
  FakeQuantize quantizer(kWeights, QuantizerRole::kWeight, 1);
  ForwardContext training{.training = true};
  quantizer.forward(Variable(Tensor::from({12.7F}, {1, 1})), training);
  quantizer.forward(Variable(Tensor::from({1.27F}, {1, 1})), training);
  EXPECT_FLOAT_EQ(quantizer.host_scale()[0], 0.01F);
}

TEST(QConfig, RefusesWhatIntegersCannotDo) {
  QConfig config = default_w8a8();
  EXPECT_NO_THROW(validate(config));
  config.weights->scheme.symmetric = false;
  EXPECT_THROW(validate(config), std::invalid_argument);
  config = default_w8a8();
  config.activations->scheme.strategy = observers::Strategy::kChannel;
  EXPECT_THROW(validate(config), std::invalid_argument);
  config = default_w8a8();
  config.activations->observer.type = "nonsense";
  EXPECT_THROW(validate(config), std::invalid_argument);
}

}  // namespace
}  // namespace steelyard::qat
