// Sums between GPUs: ranks are threads, each with a GPU; emulated ones share theirs.
#include "steelyard/framework/comm/nccl.h"

#include <gtest/gtest.h>

#include <span>

#include "steelyard/framework/comm/threads.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/cuda/cuda_memory.h"
#include "tests/framework/comm/comm_cases.h"

namespace steelyard::testing {

// Each program's own.
bool has_gpus(int ranks);
Device gpu_of_rank(int rank);

namespace {

using comm::Communicator;
using comm::GpuSums;
using comm::run_as_ranks;

class Gpus : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!has_gpus(GetParam())) GTEST_SKIP() << "fewer GPUs than ranks";
  }
};

TEST_P(Gpus, SumsAreTheTreeOfTheShards) {
  run_as_ranks(GetParam(), [](Communicator& ranks) {
    const Device gpu = gpu_of_rank(ranks.rank());
    ranks.connect_gpus(gpu);
    for (std::int64_t shards = ranks.size(); shards <= 8; shards *= 2) {
      check_sums(ranks, shards, gpu);
    }
    check_sums(ranks, ranks.size());  // of the host's tensors, as before
    ranks.finish();
  });
}

TEST_P(Gpus, SumsAreTheSameThroughTheHost) {
  run_as_ranks(GetParam(),
               [](Communicator& ranks) { check_sums(ranks, 8, gpu_of_rank(ranks.rank())); });
}

TEST_P(Gpus, TheLibrarysOwnSumIsASum) {
  run_as_ranks(GetParam(), [](Communicator& ranks) {
    const Device gpu = gpu_of_rank(ranks.rank());
    ranks.connect_gpus(gpu, GpuSums::kFast);
    const Tensor f32 = Tensor::full({1000}, ranks.rank()).to(gpu);
    const Tensor f64 = Tensor::full({7}, ranks.rank() + 0.5, DType::kF64).to(gpu);
    ranks.sum({f32, f64, Tensor::zeros({0}).to(gpu)});
    const int n = ranks.size();
    EXPECT_EQ(f32.to(Device{}).span<float>()[999], static_cast<float>(n * (n - 1) / 2));
    EXPECT_EQ(f64.to(Device{}).span<double>()[6], n * n / 2.0);
    ranks.finish();
  });
}

// What one GPU can tell of the library.
TEST(Nccl, ARankExchangesWithItself) {
  if (!has_gpus(1)) GTEST_SKIP() << "no CUDA device";
  const Device gpu = gpu_of_rank(0);
  Communicator alone;
  const auto transport = comm::nccl_transport(alone, gpu);
  const Tensor sent = Tensor::full({1000}, 3).to(gpu);
  const Tensor received = Tensor::zeros({1000}).to(gpu);
  const auto bytes = [](const Tensor& tensor) {
    return std::as_writable_bytes(std::span(tensor.data<float>(), 1000));
  };
  kernels::cuda_wait_for(transport->queue(), cuda_queue(gpu));
  transport->exchange(0, bytes(sent), bytes(received));
  transport->sum_in_any_order(received.raw(), 1000, DType::kF32);
  kernels::cuda_wait_for(cuda_queue(gpu), transport->queue());
  EXPECT_EQ(received.to(Device{}).span<float>()[999], 3);
  EXPECT_EQ(transport->problem(), "");
  transport->finish();
}

INSTANTIATE_TEST_SUITE_P(Comm, Gpus, ::testing::Values(1, 2, 4),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace steelyard::testing
