// The folding modes over time: schedules, checkpoints, names, and models with residual blocks.
#include <gtest/gtest.h>

#include "steelyard/layers/containers/residual.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/model/schedule.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/qat/fold_support.h"

namespace steelyard::qat {
namespace {

using namespace testing_fold;
using testing::all_close;

class FoldingOverTime : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Folding, FoldingOverTime, ::testing::ValuesIn(kFolding), name_of);
INSTANTIATE_TEST_SUITE_P(Unfolded, FoldingOverTime, ::testing::ValuesIn(kUnfolded), name_of);

TEST_P(FoldingOverTime, FreezingSwitchesTheCorrectionOff) {
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
TEST_P(FoldingOverTime, EvaluationNeverChangesState) {
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
TEST_P(FoldingOverTime, FrozenRangesStayInTraining) {
  const auto model = prepared(chain(GetParam().bias), GetParam().mode);
  ScheduleCallback schedule(*model, {.freeze_observers = 1});
  ForwardContext training{.training = true};
  schedule.on_epoch_begin(0);
  model->forward(input(1), training);
  schedule.on_epoch_begin(1);
  std::vector<std::vector<float>> before, after;
  const auto scales = [&](std::vector<std::vector<float>>& to) {
    for (const auto& q : named_quantizers(*model)) to.push_back(q.quantizer->host_scale());
  };
  scales(before);
  model->forward(input(2), training);
  scales(after);
  EXPECT_EQ(before, after);
}

// pytorch#50868: a checkpoint of the float model keeps its names, and so does the quantized one.
TEST_P(FoldingOverTime, NamesAreThoseOfTheFloatModel) {
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

TEST_P(FoldingOverTime, SavedStateContinuesWithTheSameBits) {
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
TEST_P(FoldingOverTime, PatternsInsideResidualsAreRecognised) {
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
