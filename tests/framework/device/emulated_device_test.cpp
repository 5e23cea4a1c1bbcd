// What only an emulated GPU does on demand: little memory, kernels that it does not run, a loss.
#include <gtest/gtest.h>

#include <cstdlib>

#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/tensor/caching_allocator.h"
#include "steelyard/framework/train/trainer.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace steelyard::testing {
namespace {

// The limit beyond what is in use by now, cached blocks given back.
emulation::Options with_memory(std::int64_t bytes) {
  release_cached_memory(kCudaDevice);
  emulation::Options options = emulation::options();
  options.memory_limit =
      static_cast<std::size_t>(allocator_stats(kCudaDevice).in_use_bytes + bytes);
  return options;
}

TEST(EmulatedDevice, GivesCachedBlocksBackBeforeMemoryIsUsedUp) {
  const emulation::ScopedOptions scope(with_memory(10 << 20));
  { const Tensor t = Tensor::empty({6 << 20}, DType::kU8, kCudaDevice); }
  EXPECT_GE(allocator_stats(kCudaDevice).cached_bytes, 6 << 20);
  const Tensor t = Tensor::empty({9 << 20}, DType::kU8, kCudaDevice);
  try {
    Tensor::empty({3 << 20}, DType::kU8, kCudaDevice);
    FAIL() << "nothing thrown";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(std::string(error.what()),
              "out of memory on cuda:0: asked for 3145728 bytes with " +
                  std::to_string(allocator_stats(kCudaDevice).in_use_bytes) + " in use");
  }
}

// What cuBLAS needs for itself; not while recorded work may read it.
TEST(EmulatedDevice, GivesUnusedBlocksBackToTheDriver) {
  CachingAllocator& memory = allocator(kCudaDevice);
  { const Tensor t = Tensor::empty({1 << 20}, DType::kU8, kCudaDevice); }
  memory.begin_private();
  memory.release_unused();
  EXPECT_GE(memory.stats().cached_bytes, 1 << 20);
  memory.end_private();
  memory.release_unused();
  EXPECT_EQ(memory.stats().cached_bytes, 0);
}

// Two layers whose activations are most of what a step takes.
class Wide : public Module {
 public:
  Wide()
      : in_(register_parameter("in", random_tensor({256, 3}, 3, DType::kF32))),
        out_(register_parameter("out", random_tensor({5, 256}, 4, DType::kF32))) {}
  Variable forward(const Variable& x, ForwardContext&) override {
    return linear(relu(linear(x, in_, Variable())), out_, Variable());
  }
  std::string type_name() const override { return "Wide"; }

 private:
  Variable& in_;
  Variable& out_;
};

std::int64_t captured_steps(bool cuda_graph) {
  Dataset dataset{random_tensor({7999, 3}, 1, DType::kF32), Tensor::zeros({7999}, DType::kI64), 5};
  Wide model;
  move_to(model, kCudaDevice);
  Sgd optimizer(model.named_parameters(), {});
  const LoaderOptions loader{.batch_size = 1000, .normalization = {}, .augment = {}};
  TrainerOptions options;
  options.cuda_graph = cuda_graph;
  Trainer trainer(model, optimizer, dataset, {}, loader, options, {});
  return trainer.run(false).captured_steps;
}

// The last step's activations find room where the recorded step's were.
TEST(EmulatedDevice, CapturedStepsLeaveTheirMemoryToTheLastBatch) {
  release_cached_memory(kCudaDevice);
  const std::int64_t before = allocator_stats(kCudaDevice).in_use_bytes;
  captured_steps(false);
  const AllocatorStats stats = allocator_stats(kCudaDevice);
  const std::int64_t eager = stats.in_use_bytes + stats.cached_bytes - before;
  const emulation::ScopedOptions scope(with_memory(eager * 5 / 4));
  EXPECT_EQ(captured_steps(true), 5);
}

TEST(EmulatedDevice, ALostOneIsSaidByEveryCallAndDestructorsGoOn) {
  Wide model;
  move_to(model, kCudaDevice);
  {
    emulation::Options options = emulation::options();
    options.work_until_lost = 0;
    Dataset dataset{random_tensor({40, 3}, 1, DType::kF32), Tensor::zeros({40}, DType::kI64), 5};
    Sgd optimizer(model.named_parameters(), {});
    const LoaderOptions loader{.batch_size = 10, .normalization = {}, .augment = {}};
    Trainer trainer(model, optimizer, dataset, {}, loader, TrainerOptions(), {});
    const emulation::ScopedOptions scope(options);
    EXPECT_THROW(trainer.run(false), std::runtime_error);
    EXPECT_THROW(model.named_parameters()[0].variable.value().to(kCpuDevice), std::runtime_error);
  }
  // The scope's end brought it back.
  EXPECT_EQ(values(model.named_parameters()[0].variable.value().to(kCpuDevice)),
            values(random_tensor({256, 3}, 3, DType::kF32)));
}

// One whose kernels are not in the build, say.
TEST(EmulatedDevice, OneThatCannotBeUsedIsNotTaken) {
  setenv("STEELYARD_EMULATED_PROBLEM", "no kernel image", 1);
  try {
    resolve_device("cuda");
    ADD_FAILURE() << "nothing thrown";
  } catch (const DeviceError& error) {
    EXPECT_STREQ(error.what(), "device 'cuda' is not available: no kernel image");
  }
  EXPECT_EQ(resolve_device("auto"), kCpuDevice);
  EXPECT_EQ(why_no_gpu(), "no kernel image");
  unsetenv("STEELYARD_EMULATED_PROBLEM");
  EXPECT_EQ(resolve_device("auto"), kCudaDevice);
  EXPECT_EQ(why_no_gpu(), "");
}

}  // namespace
}  // namespace steelyard::testing
