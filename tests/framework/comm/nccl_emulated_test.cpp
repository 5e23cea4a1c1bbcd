// The NCCL backend on the emulated GPU, which the ranks, threads of one process, share.
#include "steelyard/framework/comm/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/framework/comm/threads.h"
#include "tests/framework/comm/comm_cases.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/devices.h"

namespace steelyard::testing {

// For nccl_test.cpp.
bool has_gpus(int ranks);
Device gpu_of_rank(int rank);

bool has_gpus(int) { return true; }
Device gpu_of_rank(int) { return kCudaDevice; }

namespace {

using comm::Communicator;
using comm::GpuSums;
using comm::run_as_ranks;

// Work runs when something waits for it: sums and what follows them wait for what they need.
TEST(Nccl, SumsWaitForTheGpusWorkAndItForThem) {
  emulation::Options options = emulation::options();
  options.deferred = true;
  const emulation::ScopedOptions scope(options);
  run_as_ranks(4, [](Communicator& ranks) {
    ranks.connect_gpus(kCudaDevice);
    check_sums(ranks, 8, kCudaDevice);
    ranks.finish();
  });
}

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
