#include "steelyard/qat/model/trained_parts.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/prepare/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/model/schedule.h"
#include "tests/support/gradcheck.h"

namespace steelyard::qat {
namespace {

using testing::message_of;
using testing::random_tensor;

std::shared_ptr<Sequential> float_model() {
  Rng rng(3);
  Conv2dOptions conv;
  conv.in_channels = 2;
  conv.out_channels = 4;
  conv.kernel_size = {3, 3};
  const auto body = std::make_shared<Sequential>(Sequential::NamedChildren{
      {"conv", std::make_shared<Conv2d>(conv, rng)},
      {"bn", std::make_shared<BatchNorm2d>(BatchNorm2dOptions{.channels = 4})},
      {"relu", std::make_shared<ReLU>()},
      {"gap", std::make_shared<GlobalAvgPool>()}});
  return std::make_shared<Sequential>(
      Sequential::NamedChildren{{"body", body},
                                {"fc", std::make_shared<Linear>(LinearOptions{4, 4}, rng)},
                                {"fc2", std::make_shared<Linear>(LinearOptions{4, 3}, rng)}});
}

TrainedParts parts(std::vector<std::string> targets) {
  return {*float_model(), targets, {}, "train.only"};
}

TEST(TrainedParts, AreNamedByTypePathOrExpression) {
  EXPECT_TRUE(TrainedParts().everything());
  EXPECT_TRUE(TrainedParts().contain("anything"));
  const TrainedParts by_path = parts({"fc"});
  EXPECT_FALSE(by_path.everything());
  EXPECT_TRUE(by_path.contain("fc.weight_quantizer.scale"));
  EXPECT_FALSE(by_path.contain("fc2.weight")) << "a longer name is another layer";
  EXPECT_FALSE(by_path.contain("input_quantizer"));
  EXPECT_TRUE(parts({"Linear"}).contain("fc2.bias"));
  EXPECT_FALSE(parts({"Linear"}).contain("body.conv.weight"));
  EXPECT_TRUE(parts({"re:body\\..*"}).contain("body.bn.running_mean"));
  EXPECT_TRUE(parts({"body"}).contain("body.conv.weight")) << "with everything beneath";
}

TEST(TrainedParts, Errors) {
  EXPECT_EQ(message_of<InputError>([] {
              parts({"fc", "fc3"});
            }),
            "train.only: 'fc3' matches no module (did you mean 'fc'?)");
  EXPECT_EQ(message_of<InputError>([] { parts({"ReLU"}); }),
            "train.only: 'ReLU' names only modules without parameters");
  EXPECT_THAT(message_of<InputError>([] { parts({"re:("}); }),
              ::testing::HasSubstr("train.only: 're:(': bad regular expression"));
  // An override's place is its key already.
  for (const std::string place : {"r.yaml:8:3: train.only", "--set train.only"}) {
    const std::string given = place.substr(0, place.rfind(": "));
    EXPECT_THAT(message_of<InputError>(
                    [&] { TrainedParts(*float_model(), {"fc3"}, {given}, "train.only"); }),
                ::testing::StartsWith(place + ": 'fc3' matches no module"));
  }
}

// The last layer alone: one product is recorded, and nothing but its parameters gets gradients.
TEST(TrainedParts, NoWorkIsDoneForTheRest) {
  const TrainedParts trained = parts({"fc2"});
  QuantizeConfig config;
  config.groups.push_back({{"Conv2d", "Linear"}, default_w8a8()});
  for (QConfig* q : {&config.groups[0].config}) {
    q->weights->learning = q->activations->learning = Learning::kScale;
  }
  const auto model = prepare(float_model(), config).model;
  ForwardContext training{.training = true};
  const Variable x(random_tensor({4, 6, 6, 2}, 1, DType::kF32));
  ForwardContext calibrating{.calibrating = true};
  model->forward(x, calibrating).value();
  const std::size_t whole = tape_of(model->forward(x, training)).size();
  EXPECT_EQ(freeze_rest(*model, trained), 4 * 3 + 3 + 3 + 1) << "weight, bias, their scales";
  ScheduleCallback schedule(*model, {.trained = trained});
  schedule.on_epoch_begin(0);
  const Variable y = model->forward(x, training);
  EXPECT_EQ(tape_of(y).size(), 3u) << "of " << whole << ": weight scale, product, output scale";
  y.backward(random_tensor(y.shape(), 2, DType::kF32));
  for (const NamedParameter& p : model->named_parameters()) {
    EXPECT_EQ(p.variable.grad().defined(), trained.contain(p.name)) << p.name;
  }
}

TEST(TrainedParts, NormsAndQuantizersOfTheRestNeverFollow) {
  const TrainedParts trained = parts({"fc"});
  QuantizeConfig config;
  config.groups.push_back({{"Conv2d", "Linear"}, default_w8a8()});
  config.bn_fold = BatchNormFold::kNone;
  const auto model = prepare(float_model(), config).model;
  ScheduleCallback schedule(*model, {.freeze_batch_norm = 5, .trained = trained});
  for (const std::int64_t epoch : {0, 1}) {
    schedule.on_epoch_begin(epoch);
    for (const NamedQuantizer& entry : named_quantizers(*model)) {
      EXPECT_EQ(entry.quantizer->observing(), entry.name.starts_with("fc.")) << entry.name;
      EXPECT_TRUE(entry.quantizer->quantizing());
    }
    for (const NamedModule& entry : model->named_modules()) {
      const auto* norm = dynamic_cast<BatchNorm2d*>(entry.module);
      EXPECT_TRUE(norm == nullptr || norm->frozen()) << entry.name;
    }
  }
}

}  // namespace
}  // namespace steelyard::qat
