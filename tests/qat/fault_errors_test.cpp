// Prepared models that are called and trained by hand, on values that are not finite.
#include "steelyard/qat/model/faults.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/prepare/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/train/divergence.h"
#include "steelyard/framework/train/optimizer.h"
#include "steelyard/layers/containers/builders.h"
#include "steelyard/qat/model/schedule.h"
#include "steelyard/qat/ptq/calibrate.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace steelyard::qat::fault_errors_test {
namespace {

using testing::message_of;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

ModulePtr<> prepared() {
  Rng rng(1);
  return prepare(
             sequential({{"fc1", linear(4, 8, rng)}, {"relu", relu()}, {"fc2", linear(8, 3, rng)}}),
             w8a8({"Linear"}))
      .model;
}

Variable batch(float second = 0.5F) {
  const Tensor x = testing::random_tensor({2, 4}, 1, DType::kF32);
  x.span<float>()[1] = second;
  return Variable(x);
}

Variable loss_of(const Variable& logits) {
  return cross_entropy(logits, Tensor::from<std::int64_t>({0, 2}, {2}));
}

// A model that has seen a batch, so that it can be evaluated.
ModulePtr<> trained() {
  const ModulePtr<> model = prepared();
  loss_of(model(batch(), {.training = true})).backward();
  clear_gradients(*model);
  return model;
}

TEST(FaultErrors, EvaluationOfANanNamesItsQuantizer) {
  const ModulePtr<> model = trained();
  EXPECT_NO_THROW(model(batch(), {}));
  EXPECT_EQ(message_of<TrainingDiverged>([&] { model(batch(kNan), {}); }),
            "evaluation: 1 non-finite values reached the quantizer input_quantizer");
  EXPECT_NO_THROW(model(batch(), {})) << "told once";
}

TEST(FaultErrors, AnOptimizerOfTheFloatModelDoesNotStepInSilence) {
  for (const BatchNormFold fold : {BatchNormFold::kOneConvolution, BatchNormFold::kFrozen}) {
    Rng rng(1);
    const ModulePtr<> model = sequential({{"conv", conv2d(1, 2, 3, rng)},
                                          {"bn", batch_norm2d(2)},
                                          {"flatten", flatten()},
                                          {"fc", linear(8, 3, rng)}});
    std::vector<NamedParameter> norm, layer;
    for (const NamedParameter& p : model->named_parameters()) {
      if (p.name.starts_with("bn.")) norm.push_back(p);
      if (p.name == "fc.weight") layer.push_back(p);
    }
    Sgd of_layer(layer, {}), of_norm(norm, {});
    QuantizeConfig config = w8a8({"Conv2d", "Linear"});
    config.bn_fold = fold;
    const ModulePtr<> result = prepare(model, config).model;
    EXPECT_EQ(message_of<std::logic_error>([&] { of_layer.step(0.1); }),
              "[optimizer] 'fc.weight' is no parameter of the model since prepare() replaced its "
              "layer: make the optimizer after prepare(), of the model that it returns");
    if (fold == BatchNormFold::kFrozen) {
      EXPECT_THAT(message_of<std::logic_error>([&] { of_norm.step(0.1); }),
                  ::testing::HasSubstr("'bn.weight' is no parameter of the model"));
    } else {
      EXPECT_NO_THROW(of_norm.step(0.1)) << "the norm's parameters stay";
    }
    EXPECT_NO_THROW(Sgd(*result).step(0.1));
  }
}

// A layer of the user's that changes what it gets.
class Fill : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext&) override {
    x.value().fill(0);
    return x;
  }
  std::string type_name() const override { return "Fill"; }
};

TEST(FaultErrors, AValueThatIsChangedInPlaceIsNotReadAsItsCodes) {
  Rng rng(1);
  const ModulePtr<> model = prepare(sequential({{"fc1", linear(4, 8, rng)},
                                                {"fill", std::make_shared<Fill>()},
                                                {"fc2", linear(8, 3, rng)}}),
                                    w8a8({"Linear"}))
                                .model;
  EXPECT_THAT(message_of<std::logic_error>([&] { model(batch(), {.training = true}); }),
              ::testing::HasSubstr("was changed in place after it was computed"));
}

TEST(FaultErrors, BackwardOfANanNamesItsQuantizer) {
  const ModulePtr<> model = trained();
  const Variable loss = loss_of(model(batch(kNan), {.training = true}));
  EXPECT_EQ(message_of<TrainingDiverged>([&] { loss.backward(); }),
            "backward: 1 non-finite values reached the quantizer input_quantizer");
}

TEST(FaultErrors, InfinitiesInTrainingAreFaultsAsNanIs) {
  const ModulePtr<> model = trained();
  const Variable loss =
      loss_of(model(batch(std::numeric_limits<float>::infinity()), {.training = true}));
  EXPECT_THROW(loss.backward(), TrainingDiverged);
}

TEST(FaultErrors, ANanInAWeightNamesTheWeightsQuantizer) {
  const ModulePtr<> model = trained();
  model->named_parameters()[2].variable.value().data<float>()[3] = kNan;
  EXPECT_EQ(message_of<TrainingDiverged>([&] { model(batch(), {}); }),
            "evaluation: 1 non-finite values reached the quantizer fc2.weight_quantizer");
}

TEST(FaultErrors, AnInfiniteWeightIsAFaultInEvaluation) {
  for (const float infinite : {1.0F, -1.0F}) {
    const ModulePtr<> model = trained();
    model->named_parameters()[2].variable.value().data<float>()[3] =
        infinite * std::numeric_limits<float>::infinity();
    EXPECT_EQ(message_of<TrainingDiverged>([&] { model(batch(), {}); }),
              "evaluation: 1 non-finite values reached the quantizer fc2.weight_quantizer");
  }
}

TEST(FaultErrors, ThereIsNoneOfANullQuantizer) {
  EXPECT_EQ(message_of<std::invalid_argument>([] {
              take_fault({{"a", nullptr}});
            }),
            "[take_fault] expected a quantizer, got null for 'a'");
}

// The gradients may be any: nobody called backward() of the pass.
TEST(FaultErrors, AStepChangesNothingAfterANan) {
  const ModulePtr<> model = trained();
  Sgd optimizer(*model);
  for (NamedParameter& p : model->named_parameters()) {
    p.variable.set_grad(Tensor::full(p.variable.shape(), 1));
  }
  model(batch(kNan), {.training = true});
  const Tensor weight = model->named_parameters()[0].variable.value();
  const Tensor before = weight.clone();
  EXPECT_EQ(message_of<TrainingDiverged>([&] { optimizer.step(0.1); }),
            "optimizer step: 1 non-finite values reached the quantizer input_quantizer");
  EXPECT_TRUE(testing::all_close(weight, before, 0, 0));
  EXPECT_NO_THROW(optimizer.step(0.1));
}

// Nothing of the model is on the tape but its output.
TEST(FaultErrors, AHeadThatIsTrainedAloneTellsOfItsBackbone) {
  const ModulePtr<> backbone = trained();
  for (NamedParameter& p : backbone->named_parameters()) p.variable.set_requires_grad(false);
  Rng rng(2);
  const auto head = linear(3, 3, rng);
  const auto loss = [&](float second) {
    return loss_of(head(backbone(batch(second), {.training = true}), {.training = true}));
  };
  EXPECT_NO_THROW(loss(0.5F).backward());
  EXPECT_THROW(loss(kNan).backward(), TrainingDiverged);
}

TEST(FaultErrors, AreTurnedOffAndOnAgain) {
  const ModulePtr<> model = trained();
  set_fault_errors(*model, false);
  EXPECT_NO_THROW(model(batch(kNan), {}));
  EXPECT_NO_THROW(loss_of(model(batch(kNan), {.training = true})).backward());
  EXPECT_EQ(take_fault(named_quantizers(*model)),
            "2 non-finite values reached the quantizer input_quantizer");
  set_fault_errors(*model, true);
  EXPECT_NO_THROW(model(batch(), {}));
  EXPECT_THROW(model(batch(kNan), {}), TrainingDiverged);
}

TEST(FaultErrors, OneMessageEndsAllCounts) {
  const ModulePtr<> model = trained();
  model->named_parameters()[0].variable.value().data<float>()[0] = kNan;
  EXPECT_THROW(model(batch(kNan), {}), TrainingDiverged);
  EXPECT_FALSE(take_fault(named_quantizers(*model)));
}

TEST(FaultErrors, AModelThatIsGoneTellsNothing) {
  ModulePtr<> model = trained();
  Sgd optimizer(*model);
  const Variable loss = loss_of(model(batch(kNan), {.training = true}));
  model.reset();
  EXPECT_NO_THROW(loss.backward());
  EXPECT_NO_THROW(optimizer.step(0.1));
}

TEST(FaultErrors, CalibrationSaysItself) {
  const ModulePtr<> model = prepared();
  const std::string message = message_of<TrainingDiverged>(
      [&] { calibrate(*model, 1, [](std::int64_t) { return batch(kNan).value(); }); });
  EXPECT_EQ(message.substr(0, message.find(": ")), "calibration, batch 1");
}

TEST(FaultErrors, ATrainersCallbackSaysAtWhichStep) {
  const ModulePtr<> model = trained();
  ScheduleCallback schedule(*model, {});
  schedule.on_epoch_begin(0);
  schedule.on_step_begin(0, 1);
  EXPECT_NO_THROW(loss_of(model(batch(kNan), {.training = true})).backward());
  EXPECT_EQ(message_of<TrainingDiverged>([&] { schedule.on_step_end({.step = 1}); }),
            "step 1: 1 non-finite values reached the quantizer input_quantizer");
  EXPECT_THROW(model(batch(kNan), {}), TrainingDiverged) << "between steps the model looks";
}

TEST(FaultErrors, TrialsMayBeForgotten) {
  const ModulePtr<> model = trained();
  {
    const FaultErrorsOff trial(*model, FaultErrorsOff::Counted::kDropped);
    EXPECT_NO_THROW(model(batch(kNan), {}));
  }
  EXPECT_NO_THROW(model(batch(), {}));
}

TEST(FaultErrors, OnlyPreparedModelsHaveThem) {
  Rng rng(1);
  const auto layer = linear(4, 3, rng);
  EXPECT_EQ(message_of<std::invalid_argument>([&] { set_fault_errors(*layer, false); }),
            "[set_fault_errors] expected a model that prepare() made, got Linear");
  EXPECT_NO_THROW(layer(batch(kNan), {})) << "floats hide no NaN";
}

}  // namespace
}  // namespace steelyard::qat::fault_errors_test
