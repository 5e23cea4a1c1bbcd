// What each primitive of a warp, of a block and of memory computes, as CUDA says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "steelyard/kernels/cuda/block_sum.h"
#include "steelyard/kernels/cuda/launch.h"
#include "tests/support/cuda_emulation/emulation.h"

namespace steelyard::kernels::cuda {
namespace {

using emulation::for_each_order;

// ---- Warps

// Results of a shuffle by one warp of `threads` lanes that all give their lane number.
template <typename Call>
std::vector<int> by_lane(int threads, Call call) {
  struct Kernel {
    static void run(int* out, Call function) {
      out[threadIdx.x] = function(static_cast<int>(threadIdx.x));
    }
  };
  std::vector<int> out(static_cast<std::size_t>(threads));
  launch(&Kernel::run, {1, threads}, nullptr, out.data(), call);
  return out;
}

TEST(CudaEmulation, ShufflesReadTheLanesThatCudaSays) {
  for_each_order([] {
    const auto up = by_lane(32, [](int lane) { return __shfl_up_sync(kFullWarp, lane, 3, 8); });
    const auto down = by_lane(32, [](int lane) { return __shfl_down_sync(kFullWarp, lane, 3, 8); });
    const auto xored =
        by_lane(32, [](int lane) { return __shfl_xor_sync(kFullWarp, lane, 12, 8); });
    const auto direct =
        by_lane(32, [](int lane) { return __shfl_sync(kFullWarp, lane, lane + 9, 8); });
    const auto last = by_lane(32, [](int lane) { return __shfl_sync(kFullWarp, lane, -1); });
    for (int lane = 0; lane < 32; ++lane) {
      const auto i = static_cast<std::size_t>(lane);
      EXPECT_EQ(up[i], lane % 8 >= 3 ? lane - 3 : lane);
      EXPECT_EQ(down[i], lane % 8 < 5 ? lane + 3 : lane);
      EXPECT_EQ(xored[i], (lane ^ 12) <= (lane | 7) ? lane ^ 12 : lane);  // never a later group
      EXPECT_EQ(direct[i], lane / 8 * 8 + (lane + 9) % 8);
      EXPECT_EQ(last[i], 31);
    }
  });
}

TEST(CudaEmulation, ShufflesMoveEveryTypeWhole) {
  const auto wide = by_lane(32, [](int lane) {
    const double from_next = __shfl_down_sync(kFullWarp, lane + 0.125, 1);
    const std::uint64_t large = __shfl_xor_sync(kFullWarp, std::uint64_t{1} << lane, 31);
    const float small = __shfl_sync(kFullWarp, static_cast<float>(lane) / 2, 7);
    const bool same = from_next == std::min(lane + 1, 31) + 0.125;
    return same && large == std::uint64_t{1} << (31 - lane) && small == 3.5F ? 1 : 0;
  });
  EXPECT_THAT(wide, ::testing::Each(1));
}

TEST(CudaEmulation, LanesThatTakeNoPartGivePoison) {
  for_each_order([] {
    const auto halves = by_lane(32, [](int lane) {  // the halves wait separately
      const unsigned mask = lane < 16 ? 0xFFFFU : 0xFFFF0000U;
      return __shfl_sync(mask, lane, 20);
    });
    for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(halves[i], i < 16 ? -1 : 20);
    const auto partial = by_lane(20, [](int lane) { return __shfl_down_sync(kFullWarp, lane, 1); });
    EXPECT_EQ(partial[18], 19);
    EXPECT_EQ(partial[19], -1);  // lane 20 does not exist
  });
}

TEST(CudaEmulation, VotesCountTheLanesOfTheMask) {
  for_each_order([] {
    const auto full = by_lane(32, [](int lane) {
      const bool right = __ballot_sync(kFullWarp, lane % 3 == 0) == 0x49249249U &&
                         __any_sync(kFullWarp, lane == 31) == 1 && __any_sync(kFullWarp, 0) == 0 &&
                         __all_sync(kFullWarp, lane + 1) == 1 && __all_sync(kFullWarp, lane) == 0;
      return right ? 1 : 0;
    });
    EXPECT_THAT(full, ::testing::Each(1));
    const auto partial = by_lane(6, [](int) {
      const bool right = __ballot_sync(kFullWarp, 1) == 0x3FU && __all_sync(kFullWarp, 1) == 1;
      return right ? 1 : 0;
    });
    EXPECT_THAT(partial, ::testing::Each(1));
    const auto odd = by_lane(32, [](int lane) {  // one branch waits while the other does not
      return lane % 2 == 0 ? 0xAA : static_cast<int>(__ballot_sync(0xAAAAAAAAU, lane < 8));
    });
    EXPECT_THAT(odd, ::testing::Each(0xAA));
  });
}

// ---- Blocks

__global__ void vote_in_block(int* out) {
  const int t = static_cast<int>(threadIdx.x);
  const bool right = __syncthreads_or(t == 69) != 0 && __syncthreads_or(0) == 0 &&
                     __syncthreads_and(t < 70) != 0 && __syncthreads_and(t) == 0 &&
                     __syncthreads_count(t % 2) == 35;
  out[t] = right ? 1 : 0;
}

TEST(CudaEmulation, BarriersThatReduceGiveEveryThreadTheResult) {
  for_each_order([] {
    std::vector<int> out(70);
    launch(vote_in_block, {1, 70}, nullptr, out.data());
    EXPECT_THAT(out, ::testing::Each(1));
  });
}

struct Totals {
  int added = 0;
  unsigned least = 1000, wrapped = 0, bits = 0, common = kFullWarp;
  unsigned long long exchanges = 0;
  long long most = -1;
  float sum = 0;
  double fine_sum = 0;
};

__global__ void accumulate(Totals* totals) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&totals->added, 2);
  atomicMin(&totals->least, i + 5);
  atomicMax(&totals->most, static_cast<long long>(i));
  atomicInc(&totals->wrapped, 6);
  atomicOr(&totals->bits, 1U << i % 20);
  atomicAnd(&totals->common, ~(1U << i % 20));
  atomicAdd(&totals->sum, 0.5F);
  atomicAdd(&totals->fine_sum, 0.25);
  unsigned long long seen = totals->exchanges;
  for (unsigned long long expected = seen + 1; seen != expected; expected = seen + 1) {
    const unsigned long long old = atomicCAS(&totals->exchanges, seen, expected);
    if (old == seen) break;
    seen = old;
  }
}

TEST(CudaEmulation, AtomicsAccumulateOverTheGrid) {
  for_each_order([] {
    Totals totals;
    launch(accumulate, {10, 50}, nullptr, &totals);
    EXPECT_EQ(totals.added, 1000);
    EXPECT_EQ(totals.least, 5U);
    EXPECT_EQ(totals.most, 499);
    EXPECT_EQ(totals.wrapped, 500U % 7);
    EXPECT_EQ(totals.bits, 0xFFFFFU);
    EXPECT_EQ(totals.common, ~0xFFFFFU);
    EXPECT_EQ(totals.sum, 250.0F);
    EXPECT_EQ(totals.fine_sum, 125.0);
    EXPECT_EQ(totals.exchanges, 500U);
  });
  int value = 3;
  EXPECT_EQ(atomicExch(&value, 9), 3);
  EXPECT_EQ(atomicAdd(&value, std::numeric_limits<int>::max()), 9);
  EXPECT_EQ(value, std::numeric_limits<int>::min() + 8);
}

TEST(CudaEmulation, BitsCountAsOnTheDevice) {
  EXPECT_EQ(__clz(0), 32);
  EXPECT_EQ(__clz(-1), 0);
  EXPECT_EQ(__ffs(0), 0);
  EXPECT_EQ(__ffs(8), 4);
  EXPECT_EQ(__popc(0xF0F0U), 8);
  EXPECT_EQ(__float_as_int(-0.0F), std::numeric_limits<int>::min());
  EXPECT_EQ(__longlong_as_double(__double_as_longlong(1.5)), 1.5);
}

__global__ void poisoned(float* value, int* integer) {
  *value = shared_memory<float>()[0];
  *integer = shared_memory<int>()[0];
}

TEST(CudaEmulation, SharedMemoryStartsAsNan) {
  float value = 0;
  int integer = 0;
  launch(poisoned, {1, 1, 4}, nullptr, &value, &integer);
  EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(integer, -1);
}

}  // namespace
}  // namespace steelyard::kernels::cuda
