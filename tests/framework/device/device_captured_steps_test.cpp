// Training steps that a GPU runs again as a whole: the numbers of steps queued one by one.
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/elementwise/dropout.h"
#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/train/trainer.h"
#include "tests/support/devices.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace steelyard::testing {
namespace {

using CapturedSteps = WithCudaDevice;
using Rows = std::vector<std::vector<double>>;

constexpr std::int64_t kSamples = 43;  // batches of 5, and one of 3
constexpr std::int64_t kBatch = 5;
constexpr std::int64_t kPerEpoch = 9;
constexpr std::int64_t kRecorded = 6;  // of an epoch: not two before, not the smaller one
constexpr std::int64_t kFeatures = 70;

Dataset samples() {
  Dataset dataset{random_tensor({kSamples, kFeatures}, 1, DType::kF32),
                  Tensor::empty({kSamples}, DType::kI64), 4};
  for (std::int64_t i = 0; i < kSamples; ++i) dataset.targets.data<std::int64_t>()[i] = i % 4;
  return dataset;
}

// A linear layer on what two dropouts leave.
class Drops : public Module {
 public:
  // on_host: one number of each step is the host's.
  explicit Drops(bool on_host = false)
      : weight_(register_parameter("weight", random_tensor({4, kFeatures}, 3, DType::kF32))),
        on_host_(on_host) {}
  Variable forward(const Variable& x, ForwardContext& context) override {
    if (!context.training) return linear(x, weight_, Variable());
    const double p = on_host_ ? 0.5 * context.rng->uniform() : 0.3;
    first_ = dropout(x, p, *context.rng).value();
    const Variable twice = dropout(Variable(first_), 0.5, *context.rng);
    second_ = twice.value();
    return linear(twice, weight_, Variable());
  }
  std::string type_name() const override { return "Drops"; }
  // What the last step left, of each dropout.
  const Tensor& first() const { return first_; }
  const Tensor& second() const { return second_; }

 private:
  Variable& weight_;
  bool on_host_;
  Tensor first_, second_;
};

class Watch : public TrainerCallback {
 public:
  explicit Watch(const Drops& model) : model_(model) {}
  void on_step_end(const StepReport&) override {
    for (const Tensor& kept : {model_.first(), model_.second()}) {
      seen_.push_back(values(kept.to(kCpuDevice)));
    }
  }
  const Rows& seen() const { return seen_; }

 private:
  const Drops& model_;
  Rows seen_;
};

struct Plan {
  Device device = kCudaDevice;
  bool recorded = true;
  bool on_host = false;
  std::filesystem::path folder = {};  // of checkpoints
  std::filesystem::path from = {};    // one to go on from
  std::int64_t epochs = 3;
};

struct Trained {
  Rows seen;
  std::vector<double> weight;
  TrainResult result;
};

Trained train(const Plan& plan) {
  Drops model(plan.on_host);
  move_to(model, plan.device);
  Sgd optimizer(model.named_parameters(), {.momentum = 0.9});
  Watch watch(model);
  TrainerOptions options;
  options.epochs = plan.epochs;
  options.seed = 11;
  options.lr_schedule.base_lr = 0.05;
  options.cuda_graph = plan.recorded;
  options.run_dir = plan.folder;
  options.checkpoint_every_steps = 4;
  options.keep_step_checkpoints = true;
  Trainer trainer(model, optimizer, samples(), Dataset(),
                  {.batch_size = kBatch, .shuffle = true, .normalization = {}, .augment = {}},
                  options, {&watch});
  if (!plan.from.empty()) trainer.restore(load_checkpoint(plan.from), "checkpoint");
  const TrainResult result = trainer.run(false);
  return {watch.seen(), values(model.named_parameters()[0].variable.value().to(kCpuDevice)),
          result};
}

TEST_F(CapturedSteps, DrawTheRandomNumbersOfEveryStep) {
  const Trained cpu = train({.device = kCpuDevice});
  const Trained eager = train({.recorded = false});
  const Trained recorded = train({});
  EXPECT_EQ(eager.result.captured_steps, 0);
  EXPECT_EQ(recorded.result.captured_steps, 3 * kRecorded);
  EXPECT_EQ(recorded.result.not_captured, "");
  ASSERT_EQ(cpu.seen.size(), 2 * 3 * kPerEpoch);
  EXPECT_EQ(eager.seen, cpu.seen);
  EXPECT_EQ(recorded.seen, cpu.seen);
  EXPECT_EQ(recorded.weight, eager.weight);
  const std::size_t step = 2 * (kPerEpoch - 4);
  std::size_t differing = 0;
  for (std::size_t i = 0; i < cpu.seen[step].size(); ++i) {
    differing += (cpu.seen[step][i] == 0) != (cpu.seen[step + 2][i] == 0);
  }
  EXPECT_GT(differing, 50) << "two recorded steps with one mask";
}

// The generator's state goes with the step, wherever a run goes on.
TEST_F(CapturedSteps, DrawTheSameNumbersWhenARunGoesOn) {
  const TemporaryFolder of_cpu, of_gpu;
  const Trained cpu = train({.device = kCpuDevice, .folder = of_cpu.path()});
  const Trained gpu = train({.folder = of_gpu.path()});
  for (const std::int64_t done : {4, 12, 20}) {
    const std::string name = "step-" + std::to_string(done) + ".safetensors";
    const Rows rest(cpu.seen.begin() + 2 * done, cpu.seen.end());
    EXPECT_EQ(train({.from = of_cpu / name}).seen, rest) << done;
    EXPECT_EQ(train({.device = kCpuDevice, .from = of_gpu / name}).seen, rest) << done;
    const Trained again = train({.from = of_gpu / name});
    EXPECT_EQ(again.seen, rest) << done;
    EXPECT_EQ(again.weight, gpu.weight) << done;
    EXPECT_GE(again.result.captured_steps, 4) << done;
  }
}

TEST_F(CapturedSteps, AreNotThoseThatDrawOnTheHost) {
  const Trained cpu = train({.device = kCpuDevice, .on_host = true});
  const Trained gpu = train({.on_host = true});
  EXPECT_EQ(gpu.seen, cpu.seen);
  EXPECT_EQ(gpu.result.captured_steps, 0);
  EXPECT_EQ(gpu.result.not_captured, "a step draws random numbers on the host");
}

// Sets all gradients to the number of the step, from step `turns` on to its negative, and takes a
// constant from weights after the update.
class SetsGradients : public TrainerCallback, public StepWork {
 public:
  SetsGradients(Module& model, std::int64_t turns, bool tells)
      : weight_(model.named_parameters()[0].variable), turns_(turns), tells_(tells) {
    for (Tensor* tensor : {&up_, &down_}) {
      *tensor = Tensor::zeros(weight_.shape(), DType::kF32, device_of(model));
    }
  }
  void on_step_begin(std::int64_t step, std::int64_t) override {
    const auto of_step = 1e-3 * static_cast<double>(step);
    up_.fill(of_step);
    down_.fill(-of_step);
    downwards_ = step >= turns_;
  }
  StepWork* step_work() override { return this; }
  void on_gradients() override {
    ++calls_;
    last_downwards_ = downwards_;
    weight_.grad().copy_from(downwards_ ? down_ : up_);
  }
  void on_update() override {
    weight_.value().copy_from(add(Variable(weight_.value()), Variable(up_)).value());
  }
  bool repeats_last_step() const override { return tells_ && downwards_ == last_downwards_; }
  std::int64_t calls() const { return calls_; }

 private:
  Variable weight_;
  Tensor up_, down_;
  std::int64_t turns_, calls_ = 0;
  bool tells_, downwards_ = false, last_downwards_ = false;
};

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-5) << i;
}

struct Steered {
  std::vector<double> weight;
  TrainResult result;
  std::int64_t calls = 0;
};

Steered steer(Device device, bool recorded, std::int64_t turns, bool tells) {
  Drops model;
  move_to(model, device);
  Sgd optimizer(model.named_parameters(), {.momentum = 0.9});
  SetsGradients callback(model, turns, tells);
  TrainerOptions options;
  options.epochs = 2;
  options.lr_schedule.base_lr = 0.1;
  options.cuda_graph = recorded;
  Trainer trainer(model, optimizer, samples(), Dataset(),
                  {.batch_size = kBatch, .normalization = {}, .augment = {}}, options, {&callback});
  const TrainResult result = trainer.run(false);
  return {values(model.named_parameters()[0].variable.value().to(kCpuDevice)), result,
          callback.calls()};
}

// A callback's part is recorded with the step, and anew when it says that it changed.
TEST_F(CapturedSteps, HoldTheCallbacksPart) {
  constexpr std::int64_t kNever = 100, kInTheFirstEpoch = 5;
  for (const std::int64_t turns : {kNever, kInTheFirstEpoch}) {
    const Steered cpu = steer(kCpuDevice, false, turns, true);
    const Steered eager = steer(kCudaDevice, false, turns, true);
    const Steered recorded = steer(kCudaDevice, true, turns, true);
    // The step that turns is not recorded.
    const std::int64_t lost = turns == kNever ? 0 : 1;
    EXPECT_EQ(recorded.result.captured_steps, 2 * kRecorded - lost);
    EXPECT_EQ(recorded.result.not_captured, "");
    EXPECT_EQ(eager.calls, 2 * kPerEpoch);
    // Once for each recording in place of each recorded step.
    EXPECT_EQ(recorded.calls, 2 * kPerEpoch - recorded.result.captured_steps + 2 + lost);
    EXPECT_EQ(recorded.weight, eager.weight);
    expect_near(recorded.weight, cpu.weight);
  }
}

TEST_F(CapturedSteps, AreNotThoseOfACallbackThatDoesNotSaySo) {
  const Steered cpu = steer(kCpuDevice, false, 5, false);
  const Steered gpu = steer(kCudaDevice, true, 5, false);
  EXPECT_EQ(gpu.result.captured_steps, 0);
  EXPECT_EQ(gpu.result.not_captured, "a callback's part in the step does not repeat");
  EXPECT_EQ(gpu.calls, 2 * kPerEpoch);
  expect_near(gpu.weight, cpu.weight);
}

}  // namespace
}  // namespace steelyard::testing
