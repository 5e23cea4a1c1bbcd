// What training on a GPU stands on: staged batches, recorded work.
#include <atomic>

#include "steelyard/framework/data/device_batches.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/tensor/captured_work.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/framework/train/trainer.h"
#include "tests/framework/device/held_queue.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace steelyard::testing {
namespace {

using DeviceBatchesOn = ::testing::TestWithParam<Device>;

Dataset numbered_samples(std::int64_t n) {
  Dataset dataset;
  dataset.inputs = random_tensor({n, 3}, 1, DType::kF32);
  dataset.targets = Tensor::empty({n}, DType::kI64);
  for (std::int64_t i = 0; i < n; ++i) dataset.targets.data<std::int64_t>()[i] = i % 5;
  dataset.classes = 5;
  return dataset;
}

TEST_P(DeviceBatchesOn, AreTheLoadersBatches) {
  if (GetParam() == kCudaDevice && !has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  const Dataset dataset = numbered_samples(11);
  LoaderOptions options;
  options.batch_size = 3;
  options.shuffle = true;
  options.seed = 4;
  DataLoader loader(dataset, options);
  DeviceBatches batches(loader, GetParam());
  for (const std::int64_t first : {0, 2, 4}) {
    batches.start(1, first);
    for (std::int64_t i = first; i < 4; ++i) {
      const Batch expected = make_batch(dataset, options, 1, i);
      const auto batch = batches.next();
      ASSERT_TRUE(batch.has_value());
      EXPECT_EQ(batch->inputs.device(), GetParam());
      EXPECT_EQ(batch->targets.device(), GetParam());
      EXPECT_EQ(batch->index, i);
      EXPECT_EQ(values(batch->inputs), values(expected.inputs));
      EXPECT_EQ(values(batch->targets), values(expected.targets));
    }
    EXPECT_FALSE(batches.next().has_value());
    EXPECT_FALSE(batches.next().has_value());
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceBatchesOn, ::testing::Values(kCpuDevice, kCudaDevice),
                         [](const auto& param) { return device_word(param.param); });

// Copies of batches are taken without waiting: each is there when it is used, and stays while it
// is.
TEST_P(DeviceBatchesOn, MayBeUsedByQueuedWork) {
  if (GetParam() == kCudaDevice && !has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  const Dataset dataset = numbered_samples(17000);
  LoaderOptions options;
  options.batch_size = 6000;  // more bytes than travel as parameters of a kernel
  DataLoader loader(dataset, options);
  DeviceBatches batches(loader, GetParam());
  std::vector<Tensor> copies;
  for (const std::int64_t epoch : {0, 1, 2}) {
    batches.start(epoch);
    while (const auto batch = batches.next()) {
      copies.push_back(batch->inputs.clone());
      copies.push_back(batch->targets.clone());
    }
  }
  ASSERT_EQ(copies.size(), 18);
  for (std::size_t i = 0; i < copies.size(); i += 2) {
    const auto at = static_cast<std::int64_t>(i / 2);
    const Batch expected = make_batch(dataset, options, at / 3, at % 3);
    EXPECT_EQ(values(copies[i].to(kCpuDevice)), values(expected.inputs)) << i;
    EXPECT_EQ(values(copies[i + 1].to(kCpuDevice)), values(expected.targets)) << i;
  }
}

using CapturedWorkOn = WithCudaDevice;

Tensor filled(double value) { return Tensor::full({300}, value, DType::kF32, kCudaDevice); }

TEST_F(CapturedWorkOn, RunsAgainOnWhatTheTensorsHoldThen) {
  const Variable x(filled(1));
  const Tensor sum = filled(0);
  const CapturedWork work(kCudaDevice, [&] {
    const Variable twice = add(x, x);
    sum.copy_from(relu(add(twice, x)).value());
  });
  EXPECT_EQ(values(sum), std::vector<double>(300, 0)) << "recording runs nothing";
  EXPECT_EQ(work.nodes(), 4U) << "two sums, a relu and a copy";
  work.run();
  EXPECT_EQ(values(sum), std::vector<double>(300, 3));
  x.value().fill(-2);
  work.run();
  EXPECT_EQ(values(sum), std::vector<double>(300, 0));
}

// Memory of the recorded work is never handed to others while it may run again.
TEST_F(CapturedWorkOn, KeepsItsMemory) {
  const Variable x(filled(1));
  const Tensor sum = filled(0);
  Variable kept;
  const CapturedWork work(kCudaDevice, [&] {
    kept = add(x, x);
    sum.copy_from(add(kept, x).value());
  });
  kept = Variable();
  std::vector<Tensor> others;
  for (int i = 0; i < 8; ++i) others.push_back(filled(7));
  work.run();
  for (const Tensor& other : others) EXPECT_EQ(values(other), std::vector<double>(300, 7));
  EXPECT_EQ(values(sum), std::vector<double>(300, 3));
}

// What the work read and gave back while it was recorded is its own, too.
TEST_F(CapturedWorkOn, KeepsTheMemoryThatItGaveBack) {
  Tensor x = filled(1);
  const Tensor sum = filled(0);
  const CapturedWork work(kCudaDevice, [&] {
    sum.copy_from(add(Variable(x), Variable(x)).value());
    x = Tensor();
  });
  std::vector<Tensor> others;
  for (int i = 0; i < 8; ++i) others.push_back(filled(7));
  work.run();
  EXPECT_EQ(values(sum), std::vector<double>(300, 2));
}

TEST_F(CapturedWorkOn, GivesItsMemoryBack) {
  const Variable x(filled(1));
  const auto run = [&] {
    const CapturedWork work(kCudaDevice, [&] { add(add(x, x), x); });
    work.run();
  };
  run();
  const AllocatorStats before = allocator_stats(kCudaDevice);
  run();
  run();
  const AllocatorStats after = allocator_stats(kCudaDevice);
  EXPECT_EQ(after.cached_bytes, before.cached_bytes);
  EXPECT_EQ(after.in_use_bytes, before.in_use_bytes);
}

TEST_F(CapturedWorkOn, MustNotWaitForTheDevice) {
  const Tensor x = filled(1);
  EXPECT_ANY_THROW(CapturedWork(kCudaDevice, [&] { x.to(kCpuDevice); }));
  EXPECT_EQ(values(x), std::vector<double>(300, 1));
}

// What is recorded would read the host's memory again at every run, whatever is there by then.
TEST_F(CapturedWorkOn, MustNotReadTheHost) {
  const Tensor x = filled(1);
  const Tensor host = Tensor::full({300}, 2);
  EXPECT_ANY_THROW(CapturedWork(kCudaDevice, [&] { x.copy_from(host); }));
  EXPECT_EQ(values(add(Variable(x), Variable(x)).value()), std::vector<double>(300, 2));
}

// A linear layer that looks at its values, or does not.
class Looks : public Module {
 public:
  explicit Looks(bool looks)
      : weight_(register_parameter("weight", random_tensor({5, 3}, 3, DType::kF32))),
        looks_(looks) {}
  Variable forward(const Variable& x, ForwardContext&) override {
    if (looks_) seen_ += x.value().to(kCpuDevice).size();
    return linear(x, weight_, Variable());
  }
  std::string type_name() const override { return "Looks"; }

 private:
  Variable& weight_;
  bool looks_;
  std::int64_t seen_ = 0;
};

// A module that waits for the GPU is trained eagerly; the result says why its steps were not
// captured.
TEST_F(CapturedWorkOn, StepsThatCannotBeRecordedRunAllTheSame) {
  std::vector<std::vector<double>> weights;
  for (const bool looks : {false, true}) {
    Looks model(looks);
    move_to(model, kCudaDevice);
    Sgd optimizer(model.named_parameters(), {});
    const Dataset dataset = numbered_samples(40);
    const LoaderOptions loader{.batch_size = 5, .normalization = {}, .augment = {}};
    Trainer trainer(model, optimizer, dataset, dataset, loader, TrainerOptions(), {});
    const TrainResult result = trainer.run(false);
    EXPECT_EQ(result.captured_steps, looks ? 0 : 6);
    EXPECT_EQ(result.not_captured.empty(), !looks) << result.not_captured;
    weights.push_back(values(model.named_parameters()[0].variable.value().to(kCpuDevice)));
  }
  EXPECT_EQ(weights[0], weights[1]);
}

TEST_F(CapturedWorkOn, AnEpochOfTwoStepsIsNotRecordedAndSaysSo) {
  Looks model(false);
  move_to(model, kCudaDevice);
  Sgd optimizer(model.named_parameters(), {});
  const Dataset dataset = numbered_samples(10);
  const LoaderOptions loader{.batch_size = 5, .normalization = {}, .augment = {}};
  Trainer trainer(model, optimizer, dataset, {}, loader, TrainerOptions(), {});
  const TrainResult result = trainer.run(false);
  EXPECT_EQ(result.captured_steps, 0);
  EXPECT_EQ(result.not_captured, "the epoch has too few steps");
}

class StopsAt : public TrainerCallback {
 public:
  StopsAt(std::int64_t step, std::atomic<bool>& stop) : step_(step), stop_(stop) {}
  void on_step_end(const StepReport& report) override { stop_ = report.step == step_; }

 private:
  std::int64_t step_;
  std::atomic<bool>& stop_;
};

// What was recorded before an interruption is forgotten: the model may have been elsewhere since.
TEST_F(CapturedWorkOn, AModelMayMoveBetweenRuns) {
  std::vector<std::vector<double>> weights;
  for (const std::int64_t stop_at : {0, 5}) {
    Looks model(false);
    move_to(model, kCudaDevice);
    Sgd optimizer(model.named_parameters(), {});
    const Dataset dataset = numbered_samples(60);
    const LoaderOptions loader{.batch_size = 5, .normalization = {}, .augment = {}};
    std::atomic<bool> stop = false;
    StopsAt stops(stop_at, stop);
    Trainer trainer(model, optimizer, dataset, {}, loader, TrainerOptions(), {&stops});
    EXPECT_EQ(trainer.run(stop).interrupted, stop_at > 0);
    move_to(model, kCpuDevice);
    std::vector<Tensor> others;
    for (int i = 0; i < 4; ++i) others.push_back(Tensor::full({5, 3}, 7, DType::kF32, kCudaDevice));
    move_to(model, kCudaDevice);
    stop = false;
    EXPECT_FALSE(trainer.run(stop).interrupted);
    for (const Tensor& other : others) EXPECT_EQ(values(other), std::vector<double>(15, 7));
    weights.push_back(values(model.named_parameters()[0].variable.value().to(kCpuDevice)));
  }
  EXPECT_EQ(weights[0], weights[1]);
}

// Holds the GPU from the end of a step to the end of the next one.
class HoldsOneStep : public TrainerCallback {
 public:
  explicit HoldsOneStep(std::int64_t step) : step_(step) {}
  void on_step_end(const StepReport& report) override {
    if (report.step == step_) held_.emplace(kCudaDevice);
    if (report.step != step_ + 1) return;
    waited_ = held_->passed();
    held_.reset();
  }
  std::optional<bool> waited() const { return waited_; }

 private:
  std::int64_t step_;
  std::optional<HeldQueue> held_;
  std::optional<bool> waited_;
};

// Neither an eager step nor a captured one, with all that the host sends to them; not the
// first one: kernels are loaded then.
TEST_F(CapturedWorkOn, StepsDoNotWaitForTheDevice) {
  for (const bool recorded : {false, true}) {
    Looks model(false);
    move_to(model, kCudaDevice);
    AdamW optimizer(model.named_parameters(), {});
    const Dataset dataset = numbered_samples(48000);
    const LoaderOptions loader{.batch_size = 6000, .normalization = {}, .augment = {}};
    TrainerOptions options;
    options.clip_grad_norm = 1;
    options.average.emplace();
    options.cuda_graph = recorded;
    HoldsOneStep holds(5);
    Trainer trainer(model, optimizer, dataset, {}, loader, options, {&holds});
    EXPECT_EQ(trainer.run(false).captured_steps, recorded ? 6 : 0);
    EXPECT_EQ(holds.waited(), false) << recorded;
  }
}

}  // namespace
}  // namespace steelyard::testing
