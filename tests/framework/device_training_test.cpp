// What training on a GPU stands on: staged batches, recorded work.
#include <atomic>

#include "framework/captured_work.h"
#include "framework/data/device_batches.h"
#include "framework/on_device.h"
#include "framework/ops/add.h"
#include "framework/ops/linear.h"
#include "framework/ops/relu.h"
#include "framework/trainer.h"
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

// A module that waits for the GPU trains as ever; the result says why its steps were not recorded.
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
    EXPECT_EQ(result.recorded_steps, looks ? 0 : 6);
    EXPECT_EQ(result.not_recorded.empty(), !looks) << result.not_recorded;
    weights.push_back(values(model.named_parameters()[0].variable.value().to(kCpuDevice)));
  }
  EXPECT_EQ(weights[0], weights[1]);
}

}  // namespace
}  // namespace steelyard::testing
