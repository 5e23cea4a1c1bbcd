#include "steelyard/qat/model/schedule.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/prepare/prepare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/layers/weighted/linear.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace steelyard::qat::schedule_test {
namespace {

std::shared_ptr<Module> prepared_model(int bits = 8) {
  Rng rng(1);
  const auto linear = std::make_shared<Linear>(LinearOptions{4, 3}, rng);
  QuantizeConfig config;
  QConfig widths = default_w8a8();
  widths.weights->scheme.bits = bits;
  widths.activations->scheme.bits = bits;
  config.groups.push_back({{"Linear"}, widths});
  return prepare(std::make_shared<Sequential>(Sequential::NamedChildren{{"fc", linear}}), config)
      .model;
}

TEST(Schedule, SwitchesFollowTheEpochs) {
  const auto model = prepared_model();
  ScheduleCallback schedule(*model,
                            {.observe_from = 1, .fake_quant_from = 2, .freeze_observers = 4});
  const bool observing[] = {false, true, true, true, false, false};
  const bool quantizing[] = {false, false, true, true, true, true};
  for (std::int64_t epoch = 0; epoch < 6; ++epoch) {
    schedule.on_epoch_begin(epoch);
    for (const auto& q : named_quantizers(*model)) {
      EXPECT_EQ(q.quantizer->observing(), observing[epoch]) << q.name << " " << epoch;
      EXPECT_EQ(q.quantizer->quantizing(), quantizing[epoch]) << q.name << " " << epoch;
    }
  }
}

TEST(Schedule, TheModelHasItsFinalFormOnceEverythingIsQuantizedWithTheFinalWidths) {
  const auto model = prepared_model();
  const auto from = [&](const QatSchedule& schedule) {
    return ScheduleCallback(*model, schedule).final_form_from();
  };
  EXPECT_EQ(from({.freeze_observers = 4, .freeze_batch_norm = 5}), 0);
  EXPECT_EQ(from({.fake_quant_from = 2}), 2);
  EXPECT_EQ(from({.fake_quant_from = 2, .fake_quant_activations_from = 3}), 3);
  EXPECT_EQ(from({.fake_quant_from = 2, .stages = {{.until = 1}, {.until = 4}}}), 4);
  EXPECT_EQ(from({.fake_quant_from = 5, .stages = {{.until = 4}}}), 5);
}

TEST(Schedule, FreezesBatchNorms) {
  Sequential model(Sequential::NamedChildren{
      {"bn", std::make_shared<BatchNorm2d>(BatchNorm2dOptions{.channels = 2})}});
  auto& bn = dynamic_cast<BatchNorm2d&>(*model.slot("bn"));
  ScheduleCallback schedule(model, {.freeze_batch_norm = 1});
  schedule.on_epoch_begin(0);
  EXPECT_FALSE(bn.frozen());
  schedule.on_epoch_begin(1);
  EXPECT_TRUE(bn.frozen());
}

TEST(Schedule, RejectsAnOrderThatCannotWork) {
  const auto model = prepared_model();
  EXPECT_THROW(ScheduleCallback(*model, {.observe_from = 2, .fake_quant_from = 1}), InputError);
  EXPECT_THROW(
      ScheduleCallback(*model, {.observe_from = 1, .fake_quant_from = 1, .freeze_observers = 1}),
      InputError);
  // Weight scales that were never chosen beside an input scale would lose biases of dead channels.
  EXPECT_THROW(ScheduleCallback(*model, {.fake_quant_from = 2, .freeze_observers = 2}), InputError);
  EXPECT_NO_THROW(ScheduleCallback(*model, {.fake_quant_from = 2, .freeze_observers = 3}));
}

// torch turns NaN into qmin with gradient 0, so that divergence hides.
TEST(Schedule, NanInAWeightStopsTheRunAndNamesItsQuantizer) {
  const auto model = prepared_model();
  ScheduleCallback schedule(*model, {});
  schedule.on_epoch_begin(0);
  ForwardContext training{.training = true};
  const Variable x(testing::random_tensor({2, 4}, 1, DType::kF32));
  model->forward(x, training);
  EXPECT_NO_THROW(schedule.on_step_end({.step = 1}));
  model->named_parameters()[0].variable.value().data<float>()[5] =
      std::numeric_limits<float>::quiet_NaN();
  model->forward(x, training);
  try {
    schedule.on_step_end({.step = 2});
    FAIL() << "NaN went unnoticed";
  } catch (const TrainingDiverged& error) {
    EXPECT_NE(std::string(error.what()).find("fc.weight_quantizer"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("step 2"), std::string::npos);
  }
}

TEST(Schedule, NanInABiasStopsTheRun) {
  const auto model = prepared_model();
  ScheduleCallback schedule(*model, {});
  schedule.on_epoch_begin(0);
  ForwardContext training{.training = true};
  model->named_parameters()[1].variable.value().data<float>()[2] =
      std::numeric_limits<float>::quiet_NaN();
  model->forward(Variable(testing::random_tensor({2, 4}, 1, DType::kF32)), training);
  EXPECT_THROW(schedule.on_step_end({.step = 1}), TrainingDiverged);
}

TEST(Schedule, ABiasThatInt32CannotHoldStopsTheRunAndNamesItsLayer) {
  Rng rng(1);
  const auto linear = std::make_shared<Linear>(LinearOptions{60000, 2}, rng);
  for (float& w : linear->weight().value().span<float>()) w = 1;
  linear->bias().value().fill(0);
  QuantizeConfig config;
  config.groups.push_back({{"Linear"}, default_w8a8()});
  const auto model =
      prepare(std::make_shared<Sequential>(Sequential::NamedChildren{{"fc", linear}}), config)
          .model;
  ScheduleCallback schedule(*model, {});
  schedule.on_epoch_begin(0);
  ForwardContext training{.training = true};
  const Variable x(Tensor::full({1, 60000}, 1.0));
  model->forward(x, training);
  EXPECT_NO_THROW(schedule.on_step_end({.step = 1}));
  linear->bias().value().data<float>()[1] = -10000;
  model->forward(x, training);
  const std::string message =
      testing::message_of<TrainingDiverged>([&] { schedule.on_step_end({.step = 2}); });
  EXPECT_EQ(message.substr(0, message.find(" may be at most")),
            "step 2: fc, channel 1: the bias -10000 and the products it is added to can overflow "
            "int32; with these scales its magnitude");
  EXPECT_NO_THROW(schedule.on_step_end({.step = 3})) << "told once";
}

// ao#2138: observers that outlive fake-quant must not move a frozen scale.
TEST(Schedule, FrozenScalesStay) {
  const auto model = prepared_model();
  ScheduleCallback schedule(*model, {.freeze_observers = 1});
  ForwardContext training{.training = true};
  Tensor values = testing::random_tensor({2, 4}, 1, DType::kF32);
  schedule.on_epoch_begin(0);
  model->forward(Variable(values), training);
  std::vector<float> before, after;
  for (const auto& q : named_quantizers(*model)) before.push_back(q.quantizer->host_scale()[0]);
  schedule.on_epoch_begin(1);
  for (float& v : values.span<float>()) v *= 100;
  model->forward(Variable(values), training);
  for (const auto& q : named_quantizers(*model)) after.push_back(q.quantizer->host_scale()[0]);
  EXPECT_EQ(before, after);
}

TEST(Schedule, ActivationsMayStartLater) {
  const auto model = prepared_model();
  ScheduleCallback schedule(*model, {.fake_quant_activations_from = 2});
  for (const std::int64_t epoch : {0, 1, 2}) {
    schedule.on_epoch_begin(epoch);
    for (const NamedQuantizer& entry : named_quantizers(*model)) {
      const bool weights = entry.quantizer->of_weights();
      EXPECT_EQ(entry.quantizer->quantizing(), weights || epoch >= 2) << entry.name;
      EXPECT_TRUE(entry.quantizer->observing());
    }
  }
}

TEST(Schedule, WidthsNarrowInStages) {
  QatSchedule stages{.stages = {{.until = 1, .weights = 8, .activations = 6},
                                {.until = 3, .weights = 5, .activations = 2}}};
  const auto model = prepared_model(4);
  ScheduleCallback schedule(*model, stages);
  const std::vector<std::pair<int, int>> expected{{8, 6}, {5, 4}, {5, 4}, {4, 4}};
  for (std::size_t epoch = 0; epoch < expected.size(); ++epoch) {
    schedule.on_epoch_begin(static_cast<std::int64_t>(epoch));
    for (const NamedQuantizer& entry : named_quantizers(*model)) {
      const bool weights = entry.quantizer->of_weights();
      EXPECT_EQ(entry.quantizer->scheme().bits,
                weights ? expected[epoch].first : expected[epoch].second)
          << entry.name << " in epoch " << epoch;
    }
  }
  stages.freeze_observers = 3;
  EXPECT_THROW(ScheduleCallback(*model, stages), InputError);
}

}  // namespace
}  // namespace steelyard::qat::schedule_test
