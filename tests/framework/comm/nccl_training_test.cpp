// Trainings by several ranks on the emulated GPU, which they share.
#include <gtest/gtest.h>

#include <mutex>
#include <string>

#include "steelyard/framework/comm/threads.h"
#include "steelyard/framework/train/trainer.h"
#include "steelyard/layers/containers/builders.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace steelyard::testing {
namespace {

using comm::Communicator;

Dataset samples() {
  Dataset dataset;
  dataset.inputs = random_tensor({22, 4, 4, 2}, 1, DType::kF32);
  dataset.targets = Tensor::empty({22}, DType::kI64);
  for (std::int64_t i = 0; i < 22; ++i) dataset.targets.data<std::int64_t>()[i] = i % 3;
  dataset.classes = 3;
  return dataset;
}

// The bytes of the model after two epochs of three steps, the last one of 6 rows.
std::string trained(Communicator& ranks) {
  Rng rng(7);
  const auto model = sequential({{"conv", conv2d(2, 4, 3, rng, {.padding = {1, 1}})},
                                 {"norm", batch_norm2d(4)},
                                 {"relu", relu()},
                                 {"flatten", flatten()},
                                 {"fc", linear(4 * 4 * 4, 3, rng)}});
  move_to(*model, kCudaDevice);
  Sgd optimizer(model->named_parameters(), {.momentum = 0.9});
  TrainerOptions options;
  options.epochs = 2;
  options.lr_schedule.base_lr = 0.05;
  options.shards = 4;
  options.ranks = &ranks;
  Trainer trainer(*model, optimizer, samples(), samples(),
                  {.batch_size = 8, .normalization = {}, .augment = {}}, options, {});
  trainer.run(false);
  std::string bytes;
  for (const NamedTensor& t : module_state(*model)) {
    const Tensor host = t.tensor.to(Device{});
    bytes.append(static_cast<const char*>(host.raw()), static_cast<std::size_t>(host.bytes()));
  }
  return bytes;
}

TEST(Nccl, ATrainingOnSeveralGpusHasTheBitsOfOne) {
  Communicator alone;
  const std::string expected = trained(alone);
  for (const int ranks : {2, 4}) {
    for (const bool connected : {true, false}) {
      std::mutex mutex;
      int same = 0;
      comm::run_as_ranks(ranks, [&](Communicator& all) {
        if (connected) all.connect_gpus(kCudaDevice);
        const std::string bytes = trained(all);
        all.finish();
        const std::lock_guard lock(mutex);
        same += bytes == expected ? 1 : 0;
      });
      EXPECT_EQ(same, ranks) << connected;
    }
  }
}

}  // namespace
}  // namespace steelyard::testing
