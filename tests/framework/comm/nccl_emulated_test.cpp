// Sums between GPUs: ranks are threads that share the emulated one, over an emulated NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/framework/comm/nccl.h"
#include "steelyard/framework/comm/threads.h"
#include "tests/framework/comm/comm_cases.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/devices.h"

namespace steelyard::testing {
namespace {

using comm::Communicator;
using comm::GpuSums;
using comm::run_as_ranks;

class Gpus : public ::testing::TestWithParam<int> {};

TEST_P(Gpus, SumsAreTheTreeOfTheShards) {
  for (bool deferred : {false, true}) {
    emulation::Options options = emulation::options();
    options.deferred = deferred;
    const emulation::ScopedOptions scope(options);
    run_as_ranks(GetParam(), [](Communicator& ranks) {
      ranks.connect_gpus(kCudaDevice);
      for (std::int64_t shards = ranks.size(); shards <= 8; shards *= 2) {
        check_sums(ranks, shards, kCudaDevice);
      }
      check_sums(ranks, ranks.size());  // of the host's tensors, as before
      ranks.finish();
    });
  }
}

TEST_P(Gpus, SumsAreTheSameThroughTheHost) {
  run_as_ranks(GetParam(), [](Communicator& ranks) { check_sums(ranks, 8, kCudaDevice); });
}

TEST_P(Gpus, TheLibrarysOwnSumIsASum) {
  run_as_ranks(GetParam(), [](Communicator& ranks) {
    ranks.connect_gpus(kCudaDevice, GpuSums::kFast);
    const Tensor f32 = Tensor::full({1000}, ranks.rank()).to(kCudaDevice);
    const Tensor f64 = Tensor::full({7}, ranks.rank() + 0.5, DType::kF64).to(kCudaDevice);
    ranks.sum({f32, f64, Tensor::zeros({0}).to(kCudaDevice)});
    const int n = ranks.size();
    EXPECT_EQ(f32.to(Device{}).span<float>()[999], static_cast<float>(n * (n - 1) / 2));
    EXPECT_EQ(f64.to(Device{}).span<double>()[6], n * n / 2.0);
    ranks.finish();
  });
}

INSTANTIATE_TEST_SUITE_P(Comm, Gpus, ::testing::Values(1, 2, 4),
                         ::testing::PrintToStringParamName());

TEST(Nccl, ARankThatLeavesEndsWhatTheOthersQueue) {
  run_as_ranks(2, [](Communicator& ranks) {
    comm::GpuReducer gpus(comm::nccl_transport(ranks, kCudaDevice), kCudaDevice, GpuSums::kExact);
    const Tensor tensor = Tensor::zeros({10}).to(kCudaDevice);
    EXPECT_EQ(gpus.check(), "");
    ranks.barrier();
    if (ranks.rank() == 0) {
      EXPECT_THROW(gpus.start({tensor}), std::runtime_error);  // released by the other's end
      EXPECT_THAT(gpus.check(), ::testing::HasSubstr("NCCL: remote process exited"));
      EXPECT_EQ(gpus.check(), "");  // said once
      EXPECT_THROW(gpus.start({tensor}), comm::RankLost);
    }
  });
}

TEST(Nccl, NamesItsLibrary) { EXPECT_EQ(comm::nccl_name(), "NCCL 2.28.3"); }

}  // namespace
}  // namespace steelyard::testing
