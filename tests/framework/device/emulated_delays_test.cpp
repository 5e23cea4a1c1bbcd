// A device that is as late as it may be: what nobody waits for has not happened yet. Training must
// not notice; planted mistakes must.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "steelyard/framework/data/device_batches.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/framework/train/trainer.h"
#include "steelyard/kernels/cuda/cuda_memory.h"
#include "steelyard/kernels/device_memory.h"
#include "steelyard/layers/weighted/linear.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace steelyard::testing {
namespace {

// More than travels in launches.
constexpr std::int64_t kLarge = 100000;

class EmulatedDelays : public ::testing::Test {
 protected:
  EmulatedDelays() : source_(static_cast<unsigned char*>(kernels::cuda_allocate_pinned(kLarge))) {
    copies_.stream = kernels::cuda_new_stream();
    std::memset(source_, 1, kLarge);
  }
  ~EmulatedDelays() override {
    kernels::cuda_release_stream(copies_.stream);
    kernels::cuda_release_pinned(source_);
  }
  void start_copy() {
    kernels::cuda_wait_for(copies_, compute_);
    kernels::cuda_copy_to_device(copies_, target_.raw(), source_, kLarge);
  }
  double target() const { return values(target_.to(kCpuDevice)).back(); }

  const emulation::ScopedOptions late_{emulation::Options{.deferred = true}};
  const kernels::CudaQueue& compute_ = cuda_queue(kCudaDevice);
  const Tensor target_ = Tensor::zeros({kLarge}, DType::kU8, kCudaDevice);
  kernels::CudaQueue copies_;
  unsigned char* source_;
};

TEST_F(EmulatedDelays, WhoDoesNotWaitForAStreamComesTooEarly) {
  start_copy();
  EXPECT_EQ(target(), 0);
  kernels::cuda_wait_for(compute_, copies_);
  EXPECT_EQ(target(), 1);
}

TEST_F(EmulatedDelays, PinnedMemoryIsReadWhenTheCopyRuns) {
  start_copy();
  std::memset(source_, 2, kLarge);
  kernels::cuda_wait_for(compute_, copies_);
  EXPECT_EQ(target(), 2);
  start_copy();
  kernels::cuda_synchronize(copies_);
  std::memset(source_, 3, kLarge);
  EXPECT_EQ(target(), 2);
}

TEST_F(EmulatedDelays, OtherMemoryIsReadAtOnce) {
  std::vector<unsigned char> pageable(kLarge, 4);
  kernels::cuda_copy_to_device(compute_, target_.raw(), pageable.data(), pageable.size());
  pageable.assign(kLarge, 5);
  EXPECT_EQ(target(), 4);
}

TEST_F(EmulatedDelays, ADeviceBufferHoldsAtOnceWhatItWasGiven) {
  const std::vector<unsigned char> given(kLarge, 7);
  std::vector<unsigned char> found(kLarge);
  kernels::DeviceBuffer buffer(kernels::DeviceType::kCuda, given.size());
  buffer.copy_from_host(given.data(), given.size());
  kernels::cuda_copy_to_host(copies_, found.data(), buffer.data(), found.size());
  EXPECT_EQ(found, given);
}

Dataset wide_samples(std::int64_t n) {
  Dataset dataset;
  dataset.inputs = random_tensor({n, 4001}, 1, DType::kF32);
  dataset.targets = Tensor::empty({n}, DType::kI64);
  for (std::int64_t i = 0; i < n; ++i) dataset.targets.data<std::int64_t>()[i] = i % 5;
  dataset.classes = 5;
  return dataset;
}

LoaderOptions by_eights() {
  LoaderOptions options;
  options.batch_size = 8;
  return options;
}

TEST_F(EmulatedDelays, BatchesAreWholeWhenTheyAreUsed) {
  const Dataset dataset = wide_samples(60);
  DataLoader loader(dataset, by_eights());
  DeviceBatches batches(loader, kCudaDevice);
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<Batch> used;
    batches.start(epoch);
    while (const auto batch = batches.next()) {
      used.push_back({batch->inputs.clone(), batch->targets.clone(), batch->index});
    }
    ASSERT_EQ(used.size(), 8U);
    for (const Batch& batch : used) {
      const Batch expected = make_batch(dataset, by_eights(), epoch, batch.index);
      EXPECT_EQ(values(batch.inputs), values(expected.inputs)) << batch.index;
      EXPECT_EQ(values(batch.targets), values(expected.targets)) << batch.index;
    }
  }
}

std::vector<double> trained_weights() {
  Rng rng(3);
  Linear model({.in_features = 4001, .out_features = 5}, rng);
  move_to(model, kCudaDevice);
  Sgd optimizer(model.named_parameters(), {.momentum = 0.9});
  const Dataset dataset = wide_samples(64);
  TrainerOptions options;
  options.epochs = 2;
  Trainer trainer(model, optimizer, dataset, dataset, by_eights(), options, {});
  EXPECT_EQ(trainer.run(false).captured_steps, 12);
  return values(model.named_parameters()[0].variable.value().to(kCpuDevice));
}

TEST_F(EmulatedDelays, TrainingIsTheSame) {
  const std::vector<double> late = trained_weights();
  const emulation::ScopedOptions at_once{emulation::Options{}};
  EXPECT_EQ(late, trained_weights());
}

}  // namespace
}  // namespace steelyard::testing
