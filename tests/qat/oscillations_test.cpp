#include "steelyard/qat/model/oscillations.h"

#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/gradcheck.h"

namespace steelyard::qat {
namespace {

using testing::message_of;
using testing::random_tensor;
using testing::values;

// One Linear of 4 bits, 4 to 3, and what a trainer does with it.
struct Training {
  explicit Training(const OscillationOptions& options, Learning learning = Learning::kNothing) {
    Rng rng(1);
    QuantizeConfig config;
    config.groups.push_back({{"Linear"}, default_w8a8()});
    config.groups[0].config.weights->scheme.bits = 4;
    config.groups[0].config.weights->learning = learning;
    const auto linear = std::make_shared<Linear>(LinearOptions{4, 3}, rng);
    model = prepare(std::make_shared<Sequential>(Sequential::NamedChildren{{"fc", linear}}), config)
                .model;
    for (const NamedModule& entry : model->named_modules()) {
      if (auto* found = dynamic_cast<QuantizedLayer*>(entry.module)) layer = found;
    }
    callback = std::make_unique<OscillationCallback>(*model, options);
    optimizer = std::make_unique<Sgd>(model->named_parameters(), SgdOptions{.momentum = 0.9});
  }

  // `set` changes weights before the step; returns the weights' gradient as the optimizer sees it.
  Tensor step(double lr, const std::function<void(float*)>& set = {}) {
    if (set) set(layer->weight().value().data<float>());
    callback->on_step_begin(done, 100);
    repeats = callback->repeats_last_step();
    for (NamedParameter& p : model->named_parameters()) p.variable.clear_grad();
    ForwardContext training{.training = true};
    const Variable y = model->forward(Variable(random_tensor({8, 4}, 2, DType::kF32)), training);
    y.backward(random_tensor(y.shape(), 3, DType::kF32));
    callback->on_gradients();
    const Tensor& found = layer->weight().grad();
    const Tensor gradient = found.defined() ? found.clone() : Tensor();
    optimizer->step(lr);
    callback->on_update();
    callback->on_step_end({.step = ++done});
    return gradient;
  }

  Tensor state(const std::string& name) const {
    for (const NamedBuffer& buffer : callback->named_state()) {
      if (buffer.name == "fc.weight/" + name) return buffer.tensor;
    }
    return {};
  }

  std::shared_ptr<Module> model;
  QuantizedLayer* layer = nullptr;
  std::unique_ptr<OscillationCallback> callback;
  std::unique_ptr<Optimizer> optimizer;
  std::int64_t done = 0;
  bool repeats = false;  // what the callback said before the last step
};

TEST(CosineSchedule, JoinsItsEnds) {
  const CosineSchedule schedule{1, 5};
  EXPECT_DOUBLE_EQ(schedule.at(0, 8), 1);
  EXPECT_DOUBLE_EQ(schedule.at(4, 8), 3);
  EXPECT_DOUBLE_EQ(schedule.at(8, 8), 5);
  EXPECT_NEAR(schedule.at(2, 8), 5 - 2 * (1 + std::sqrt(0.5)), 1e-12);
}

// A weight that turns in every step is frozen; whatever the optimizer and the scale do, its code
// stays, and the others go on learning.
TEST(Oscillations, FreezeAWeightThatTurnsInEveryStep) {
  for (const Learning learning : {Learning::kNothing, Learning::kScale}) {
    Training run({.momentum = 0.1, .damping = {}, .freeze_threshold = CosineSchedule{0.5, 0.5}},
                 learning);
    const auto flip = [&](float* w) {
      const float s = run.done == 0 ? 0.01F : run.layer->weight_quantizer()->host_scale()[0];
      w[1] = (run.done % 2 == 0 ? 2.2F : 2.8F) * s;
    };
    // 1 - 0.9^n > 0.5 after 7 turns: the first change turns nothing, so after step 9.
    for (int n = 0; n < 8; ++n) run.step(1e-3, flip);
    EXPECT_EQ(run.state("frozen").data<std::uint8_t>()[1], 0);
    EXPECT_EQ(run.callback->metrics()[1].value, 0);
    EXPECT_NEAR(run.callback->metrics()[0].value, 100.0 / 12, 1e-9);
    run.step(1e-3, flip);
    EXPECT_EQ(run.state("frozen").data<std::uint8_t>()[1], 1);
    EXPECT_NEAR(run.callback->metrics()[1].value, 100.0 / 12, 1e-9);
    EXPECT_EQ(run.callback->metrics()[0].value, 0);
    const int code = run.state("code").data<std::int8_t>()[1];
    const std::vector<double> before = values(run.layer->weight().value());
    for (int n = 0; n < 20; ++n) {
      const Tensor gradient = run.step(1e-2);
      EXPECT_EQ(gradient.data<float>()[1], 0.0F);
      EXPECT_NE(gradient.data<float>()[2], 0.0F);
      const FakeQuantize& quantizer = *run.layer->weight_quantizer();
      const float weight = run.layer->weight().value().data<float>()[1];
      EXPECT_EQ(weight, static_cast<float>(code) * quantizer.host_scale()[0]);
    }
    EXPECT_NE(values(run.layer->weight().value())[2], before[2]);
    EXPECT_EQ(run.state("code").data<std::int8_t>()[1], code);
  }
}

// Against the gradient of a run without damping, in the middle of the schedule.
TEST(Oscillations, DampingAddsItsGradientAndNothingElse) {
  Training plain(OscillationOptions{});
  Training damped({.momentum = 0.01, .damping = CosineSchedule{0, 0.4}, .freeze_threshold = {}});
  plain.done = damped.done = 50;
  const Tensor without = plain.step(0);
  const Tensor with = damped.step(0);
  const auto scale = damped.layer->weight_quantizer()->host_scale();
  const float* w = damped.layer->weight().value().data<float>();
  for (std::size_t i = 0; i < 12; ++i) {
    const double s = scale[i / 4];
    const double expected = 2 * 0.2 * (w[i] - s * std::nearbyint(w[i] / s));
    EXPECT_NEAR(with.data<float>()[i] - without.data<float>()[i], expected, 1e-6) << i;
  }
}

TEST(Oscillations, WaitForQuantizationAndSkipWhatIsNotTrained) {
  Training run({.momentum = 0.1, .damping = CosineSchedule{1, 1}, .freeze_threshold = {}});
  run.layer->weight_quantizer()->set_quantizing(false);
  run.step(0.1);
  EXPECT_EQ(*run.state("tracked").data<std::int64_t>(), 0);
  run.layer->weight_quantizer()->set_quantizing(true);
  run.step(0.1);
  EXPECT_EQ(*run.state("tracked").data<std::int64_t>(), 1);
  run.layer->weight().set_requires_grad(false);
  run.step(0.1);
  EXPECT_EQ(*run.state("tracked").data<std::int64_t>(), 1);
}

// A recorded step may stand for the next once nothing begins any more.
TEST(Oscillations, RepeatTheirWorkUntilTheHostChangesIt) {
  Training run({.momentum = 0.1, .damping = CosineSchedule{1, 1}, .freeze_threshold = {}});
  FakeQuantize& quantizer = *run.layer->weight_quantizer();
  const auto steps = [&](int count) {
    std::vector<bool> repeats;
    for (int i = 0; i < count; ++i) {
      run.step(0.1);
      repeats.push_back(run.repeats);
    }
    return repeats;
  };
  run.step(0.1);
  EXPECT_EQ(steps(3), (std::vector<bool>{false, true, true}));
  quantizer.set_bits(5);
  EXPECT_EQ(steps(4), (std::vector<bool>{false, false, true, true}));
  quantizer.set_quantizing(false);
  EXPECT_EQ(steps(3), (std::vector<bool>{false, true, true}));
  quantizer.set_quantizing(true);
  EXPECT_EQ(steps(3), (std::vector<bool>{false, true, true})) << "known from before";
}

// Codes of another width have nothing to do with those before.
TEST(Oscillations, BeginAnewWithAnotherWidth) {
  Training run({.momentum = 1, .damping = {}, .freeze_threshold = CosineSchedule{0.5, 0.5}});
  FakeQuantize& quantizer = *run.layer->weight_quantizer();
  const auto flip = [&](float* w) {
    w[1] = (run.done % 2 == 0 ? 0.4F : 0.6F) * w[3];
    w[0] = w[2] = 0;
  };
  for (int n = 0; n < 4; ++n) run.step(0, flip);
  EXPECT_EQ(run.state("frozen").data<std::uint8_t>()[1], 1);
  quantizer.set_bits(8);
  run.step(0, flip);
  EXPECT_EQ(run.state("frozen").data<std::uint8_t>()[1], 0);
  EXPECT_EQ(run.state("tracked").data<std::int64_t>()[0], 1);
  EXPECT_EQ(run.state("tracked").data<std::int64_t>()[1], 8);
  EXPECT_EQ(std::abs(run.state("code").data<std::int8_t>()[3]), 127);
}

TEST(Oscillations, Errors) {
  Rng rng(1);
  Linear plain({4, 3}, rng);
  EXPECT_EQ(message_of<InputError>([&] { OscillationCallback(plain, {}); }),
            "oscillations: no layer that is trained has quantized weights");
}

// Percentages are of what training can move.
TEST(Oscillations, CountTrainedWeightsOnly) {
  Rng rng(1);
  QuantizeConfig config;
  config.groups.push_back({{"Linear"}, default_w8a8()});
  const auto model = prepare(std::make_shared<Sequential>(Sequential::NamedChildren{
                                 {"a", std::make_shared<Linear>(LinearOptions{4, 30}, rng)},
                                 {"b", std::make_shared<Linear>(LinearOptions{30, 2}, rng)}}),
                             config)
                         .model;
  for (NamedParameter& p : model->named_parameters()) {
    p.variable.set_requires_grad(p.name.starts_with("b."));
  }
  OscillationCallback callback(*model, {});
  for (const NamedBuffer& buffer : callback.named_state()) {
    EXPECT_TRUE(buffer.name.starts_with("b.weight/")) << buffer.name;
    if (buffer.name == "b.weight/frozen") buffer.tensor.fill(1);
  }
  EXPECT_EQ(callback.metrics()[1].value, 100);
  for (NamedParameter& p : model->named_parameters()) p.variable.set_requires_grad(false);
  EXPECT_EQ(message_of<InputError>([&] { OscillationCallback(*model, {}); }),
            "oscillations: no layer that is trained has quantized weights");
}

}  // namespace
}  // namespace steelyard::qat
