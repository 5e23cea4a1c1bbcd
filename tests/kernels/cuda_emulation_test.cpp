// The emulation that other tests trust with CUDA kernels: right kernels give right results in every
// order, and planted mistakes of the usual kinds are found.
#include "tests/support/cuda_emulation/emulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/launch.h"
#include "tests/support/cuda_emulation/sanitizer.h"

namespace steelyard::kernels::cuda {
namespace {

using emulation::for_each_order;
using emulation::Options;
using emulation::Order;
using emulation::ScopedOptions;
using testing::AllOf;
using testing::HasSubstr;

constexpr unsigned kAll = 0xFFFFFFFFU;

// Runs a callback in each order and gives the different results, in the order of first occurrence.
template <typename Callback>
auto distinct_results(Callback&& callback) {
  std::vector<decltype(callback())> results;
  for_each_order([&] {
    auto result = callback();
    if (std::find(results.begin(), results.end(), result) == results.end()) {
      results.push_back(std::move(result));
    }
  });
  return results;
}

std::string error_of(const std::function<void()>& callback) {
  try {
    callback();
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "no error";
}

// ---- A block reduction, right and with mistakes

enum class Mistake { kNone, kNoBarrier, kOnePast, kUnwritten };

__device__ __forceinline__ int warp_sum(int value) {
  for (int distance = warpSize / 2; distance > 0; distance /= 2) {
    value += __shfl_down_sync(kAll, value, static_cast<unsigned>(distance));
  }
  return value;
}

// Each warp's sum through shared memory, then the first warp adds those up.
template <Mistake mistake>
__global__ void __launch_bounds__(1024) sum_blocks(const int* in, std::int64_t n, int* sums) {
  int* partial = shared_memory<int>();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int warp = static_cast<int>(threadIdx.x) / warpSize;
  const int lane = static_cast<int>(threadIdx.x) % warpSize;
  const int warps = static_cast<int>(blockDim.x) / warpSize;
  const int sum = warp_sum(i < n ? in[i] : 0);
  const bool writes = mistake != Mistake::kUnwritten || warp != 1;
  if (lane == 0 && writes) partial[warp] = sum;
  if (mistake != Mistake::kNoBarrier) __syncthreads();
  if (warp == 0) {
    const int read = mistake == Mistake::kOnePast ? warps + 1 : warps;
    const int total = warp_sum(lane < read ? partial[lane] : 0);
    if (lane == 0) sums[blockIdx.x] = total;
  }
}

template <Mistake mistake>
std::vector<int> block_sums() {
  std::vector<int> in(700);
  std::iota(in.begin(), in.end(), 1);
  std::vector<int> sums(3);
  launch(sum_blocks<mistake>, {3, 256, 8 * sizeof(int)}, nullptr, in.data(),
         static_cast<std::int64_t>(in.size()), sums.data());
  return sums;
}

std::vector<int> right_sums() {
  return {256 * 257 / 2, 512 * 513 / 2 - 256 * 257 / 2, 700 * 701 / 2 - 512 * 513 / 2};
}

TEST(CudaEmulation, ABlockReductionIsRightInEveryOrder) {
  EXPECT_THAT(distinct_results(block_sums<Mistake::kNone>), testing::ElementsAre(right_sums()));
}

TEST(CudaEmulation, AMissingBarrierChangesTheResult) {
  const auto results = distinct_results(block_sums<Mistake::kNoBarrier>);
  EXPECT_GT(results.size(), 1U);
  EXPECT_NE(results.front(), right_sums());  // forwards, the first warp reads before others write
}

TEST(CudaEmulation, ReadingUnwrittenSharedMemoryGivesThePoison) {
  std::set<std::vector<int>> results;
  for (const unsigned char poison : {0xFF, 0x3C}) {
    const ScopedOptions scope(Options{.poison = poison});
    results.insert(block_sums<Mistake::kUnwritten>());
  }
  EXPECT_EQ(results.size(), 2U);
}

TEST(CudaEmulation, ReadingOnePastTheSharedMemoryIsFound) {
  if constexpr (emulation::kAddressSanitizer) {
    EXPECT_DEATH(block_sums<Mistake::kOnePast>(), "AddressSanitizer");
  } else {
    EXPECT_NE(block_sums<Mistake::kOnePast>(), right_sums());
  }
}

__global__ void write_shared(int first, int last) {
  for (int i = first; i < last; ++i) shared_memory<char>()[i] = 1;
}

TEST(CudaEmulation, WritingOutsideTheSharedMemoryIsFound) {
  for (const int bytes : {0, 1, 5, 8, 100}) {
    const auto write = [&](int first, int last) {
      launch(write_shared, {1, 1, static_cast<std::size_t>(bytes)}, nullptr, first, last);
    };
    EXPECT_NO_THROW(write(0, bytes));
    if constexpr (emulation::kAddressSanitizer) {
      EXPECT_DEATH(write(0, bytes + 1), "AddressSanitizer");
      EXPECT_DEATH(write(-1, bytes), "AddressSanitizer");
    } else {
      EXPECT_THAT(error_of([&] { write(0, bytes + 1); }),
                  HasSubstr("block 0 wrote outside its shared memory: byte " +
                            std::to_string(bytes) + " of " + std::to_string(bytes)));
      EXPECT_THAT(error_of([&] { write(-1, bytes); }), HasSubstr("byte -1 of"));
    }
  }
}

// ---- Alignment

__global__ void copy_vector(const float* from, float* to) {
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
}

// UndefinedBehaviorSanitizer ends the program before the emulation can speak.
TEST(CudaEmulation, VectorsThatAreNotAlignedAreFound) {
  if constexpr (emulation::kAddressSanitizer) GTEST_SKIP() << "left to the sanitizer";
  alignas(16) float from[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  alignas(16) float to[8] = {};
  const auto copy = [&](int at_from, int at_to) {
    launch(copy_vector, {1, 1}, nullptr, from + at_from, to + at_to);
  };
  copy(4, 0);
  EXPECT_EQ(to[3], 8);
  EXPECT_THAT(error_of([&] { copy(1, 0); }),
              HasSubstr("misaligned address: a vector of 16 bytes lies 4 bytes off"));
  EXPECT_THAT(error_of([&] { copy(0, 2); }), HasSubstr("lies 8 bytes off"));
  EXPECT_EQ(to[3], 8);
}

// ---- Orders

__global__ void record_order(std::vector<unsigned>* order) {
  order->push_back(blockIdx.x * blockDim.x + threadIdx.x);
  __syncthreads();
  order->push_back(blockIdx.x * blockDim.x + threadIdx.x);
}

std::vector<unsigned> recorded_order(Order order, std::uint32_t seed = 1) {
  const ScopedOptions scope(Options{.order = order, .seed = seed});
  std::vector<unsigned> recorded;
  launch(record_order, {2, 3}, nullptr, &recorded);
  return recorded;
}

TEST(CudaEmulation, ThreadsAndBlocksRunInTheChosenOrder) {
  EXPECT_THAT(recorded_order(Order::kForward),
              testing::ElementsAre(0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5));
  EXPECT_THAT(recorded_order(Order::kReverse),
              testing::ElementsAre(5, 4, 3, 5, 4, 3, 2, 1, 0, 2, 1, 0));
  std::set<std::vector<unsigned>> random;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    random.insert(recorded_order(Order::kRandom, seed));
    EXPECT_TRUE(random.contains(recorded_order(Order::kRandom, seed)));
  }
  EXPECT_GT(random.size(), 10U);
}

TEST(CudaEmulation, OptionsHoldForTheirScope) {
  {
    const ScopedOptions scope(Options{.order = Order::kRandom, .seed = 7, .poison = 60});
    EXPECT_EQ(to_string(emulation::options()), "random, seed 7, poison 60");
    int calls = 0;
    for_each_order([&](const Options& each) { calls += each.poison == 60 ? 1 : 0; });
    EXPECT_EQ(calls, 4);
  }
  EXPECT_EQ(to_string(emulation::options()), "forward, poison 255");
}

// A block that reads what another one writes depends on the order too.
__global__ void copy_from_last_block(int* values) {
  values[blockIdx.x] = blockIdx.x + 1 == gridDim.x ? 7 : values[gridDim.x - 1];
}

TEST(CudaEmulation, BlocksThatRelyOnEachOtherDisagree) {
  EXPECT_GT(distinct_results([] {
              std::vector<int> values(5);
              launch(copy_from_last_block, {5, 1}, nullptr, values.data());
              return values;
            }).size(),
            1U);
}

// ---- Waiting in vain

__global__ void early_exit() {
  if (threadIdx.x == 3) return;
  __syncthreads();
}

__global__ void two_places() {
  if (threadIdx.x < 16) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void exited_lane() {
  if (threadIdx.x == 40) return;
  __syncwarp();
}

__global__ void lane_elsewhere() {
  if (threadIdx.x % 32 == 5) {
    __syncthreads();
  } else {
    __shfl_xor_sync(kAll, 1.0F, 1);
  }
}

__global__ void different_masks() { __ballot_sync(threadIdx.x < 8 ? 0xFFFFU : kAll, 1); }
__global__ void foreign_mask() { __any_sync(0x2U, 1); }
__global__ void bad_width() { __shfl_sync(kAll, 1, 0, 24); }

TEST(CudaEmulation, ADivergentBarrierIsAnError) {
  for_each_order([] {
    EXPECT_THAT(error_of([] {
                  launch(early_exit, {2, 40}, nullptr);
                }),
                AllOf(HasSubstr("block "), HasSubstr("divergent barrier"),
                      HasSubstr("39 threads waiting in __syncthreads at cuda_emulation_test.cpp:"),
                      HasSubstr("1 thread exited")));
    EXPECT_THAT(
        error_of([] {
          launch(two_places, {1, 40}, nullptr);
        }),
        AllOf(HasSubstr("divergent barrier"), HasSubstr("16 threads"), HasSubstr("24 threads")));
    EXPECT_EQ(block_sums<Mistake::kNone>(), right_sums());  // afterwards all is well
  });
}

TEST(CudaEmulation, AMissingWarpLaneIsAnError) {
  for_each_order([] {
    EXPECT_THAT(error_of([] {
                  launch(exited_lane, {1, 64}, nullptr);
                }),
                AllOf(HasSubstr("block 0"), HasSubstr("warp 1 waits in __syncwarp at"),
                      HasSubstr("lane 8 is missing (exited)")));
    EXPECT_THAT(error_of([] {
                  launch(lane_elsewhere, {1, 64}, nullptr);
                }),
                AllOf(HasSubstr("warp 0 waits in __shfl_xor_sync at"),
                      HasSubstr("lane 5 is missing (waiting in __syncthreads at")));
    EXPECT_THAT(error_of([] {
                  launch(different_masks, {1, 32}, nullptr);
                }),
                HasSubstr("incomplete warp collective"));
    EXPECT_THAT(error_of([] {
                  launch(foreign_mask, {1, 32}, nullptr);
                }),
                HasSubstr("is not in its own mask: __any_sync"));
    EXPECT_THAT(error_of([] { launch(bad_width, {1, 32}, nullptr); }), HasSubstr("width"));
    EXPECT_EQ(block_sums<Mistake::kNone>(), right_sums());
  });
}

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
    const auto up = by_lane(32, [](int lane) { return __shfl_up_sync(kAll, lane, 3, 8); });
    const auto down = by_lane(32, [](int lane) { return __shfl_down_sync(kAll, lane, 3, 8); });
    const auto xored = by_lane(32, [](int lane) { return __shfl_xor_sync(kAll, lane, 12, 8); });
    const auto direct = by_lane(32, [](int lane) { return __shfl_sync(kAll, lane, lane + 9, 8); });
    const auto last = by_lane(32, [](int lane) { return __shfl_sync(kAll, lane, -1); });
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
    const double from_next = __shfl_down_sync(kAll, lane + 0.125, 1);
    const std::uint64_t large = __shfl_xor_sync(kAll, std::uint64_t{1} << lane, 31);
    const float small = __shfl_sync(kAll, static_cast<float>(lane) / 2, 7);
    const bool same = from_next == std::min(lane + 1, 31) + 0.125;
    return same && large == std::uint64_t{1} << (31 - lane) && small == 3.5F ? 1 : 0;
  });
  EXPECT_THAT(wide, testing::Each(1));
}

TEST(CudaEmulation, LanesThatTakeNoPartGivePoison) {
  for_each_order([] {
    const auto halves = by_lane(32, [](int lane) {  // the halves wait separately
      const unsigned mask = lane < 16 ? 0xFFFFU : 0xFFFF0000U;
      return __shfl_sync(mask, lane, 20);
    });
    for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(halves[i], i < 16 ? -1 : 20);
    const auto partial = by_lane(20, [](int lane) { return __shfl_down_sync(kAll, lane, 1); });
    EXPECT_EQ(partial[18], 19);
    EXPECT_EQ(partial[19], -1);  // lane 20 does not exist
  });
}

TEST(CudaEmulation, VotesCountTheLanesOfTheMask) {
  for_each_order([] {
    const auto full = by_lane(32, [](int lane) {
      const bool right = __ballot_sync(kAll, lane % 3 == 0) == 0x49249249U &&
                         __any_sync(kAll, lane == 31) == 1 && __any_sync(kAll, 0) == 0 &&
                         __all_sync(kAll, lane + 1) == 1 && __all_sync(kAll, lane) == 0;
      return right ? 1 : 0;
    });
    EXPECT_THAT(full, testing::Each(1));
    const auto partial = by_lane(6, [](int) {
      const bool right = __ballot_sync(kAll, 1) == 0x3FU && __all_sync(kAll, 1) == 1;
      return right ? 1 : 0;
    });
    EXPECT_THAT(partial, testing::Each(1));
    const auto odd = by_lane(32, [](int lane) {  // one branch waits while the other does not
      return lane % 2 == 0 ? 0xAA : static_cast<int>(__ballot_sync(0xAAAAAAAAU, lane < 8));
    });
    EXPECT_THAT(odd, testing::Each(0xAA));
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
    EXPECT_THAT(out, testing::Each(1));
  });
}

struct Totals {
  int added = 0;
  unsigned least = 1000, wrapped = 0, bits = 0, common = kAll;
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

// ---- Launches

__global__ void throw_in_thread(unsigned thrower, std::shared_ptr<int>* alive) {
  const std::shared_ptr<int> held = *alive;
  if (threadIdx.x == thrower) throw std::out_of_range("thread");
  __syncthreads();
}

TEST(CudaEmulation, ExceptionsLeaveTheLaunchAndUnwindTheOtherThreads) {
  for_each_order([] {
    for (const unsigned thrower : {0U, 20U, 63U}) {
      auto alive = std::make_shared<int>();
      EXPECT_THROW(launch(throw_in_thread, {4, 64}, nullptr, thrower, &alive), std::out_of_range);
      EXPECT_EQ(alive.use_count(), 1);
    }
  });
}

__global__ void count_thread(int* count) { ++*count; }
__global__ void launch_again(int* count) { launch(count_thread, {1, 1}, nullptr, count); }

TEST(CudaEmulation, LaunchesAreChecked) {
  int count = 0;
  launch(count_thread, {0, 64}, nullptr, &count);
  EXPECT_EQ(count, 0);
  launch(count_thread, {3, 1024}, nullptr, &count);
  EXPECT_EQ(count, 3072);
  const std::vector<LaunchShape> impossible = {
      {-1, 64}, {std::int64_t{1} << 31, 64}, {1, 0}, {1, 1025}, {1, 1, 48 * 1024 + 1}};
  for (const LaunchShape& shape : impossible) {
    EXPECT_THROW(launch(count_thread, shape, nullptr, &count), std::logic_error);
  }
  EXPECT_EQ(count, 3072);
  EXPECT_THROW(launch(launch_again, {1, 1}, nullptr, &count), std::logic_error);
  EXPECT_THROW(__syncthreads(), std::logic_error);
  check(cudaSuccess, "x", "file.cu", 1);
  EXPECT_THROW(check(cudaErrorUnknown, "x", "file.cu", 1), std::runtime_error);
}

TEST(CudaEmulation, LaunchesFromAnotherHostThreadRunToo) {
  block_sums<Mistake::kNone>();
  std::vector<int> sums;
  std::thread([&] { sums = block_sums<Mistake::kNone>(); }).join();
  EXPECT_EQ(sums, right_sums());
  EXPECT_EQ(block_sums<Mistake::kNone>(), right_sums());
}

__global__ void square(const float* in, float* out) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  out[i] = in[i] * in[i];
}

__global__ void many_barriers(int* out) {
  int sum = 0;
  for (int i = 0; i < 1000; ++i) sum += __syncthreads_count(static_cast<int>(threadIdx.x) > i);
  out[threadIdx.x] = sum;
}

double seconds(const std::function<void()>& callback) {
  const auto start = std::chrono::steady_clock::now();
  callback();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(CudaEmulation, LargeGridsAndManyBarriersTakeLittleTime) {
  std::vector<float> in(10000 * 256, 3.0F), out(in.size());
  const double grid = seconds([&] {
    launch(square, {10000, 256}, nullptr, in.data(), out.data());
  });
  EXPECT_EQ(std::count(out.begin(), out.end(), 9.0F), static_cast<std::int64_t>(in.size()));
  std::vector<int> sums(256);
  const double barriers = seconds([&] { launch(many_barriers, {1, 256}, nullptr, sums.data()); });
  EXPECT_THAT(sums, testing::Each(255 * 256 / 2));
  RecordProperty("grid_seconds", std::to_string(grid));
  RecordProperty("barrier_seconds", std::to_string(barriers));
  EXPECT_LT(grid, 2.0);
  EXPECT_LT(barriers, 5.0);
}

}  // namespace
}  // namespace steelyard::kernels::cuda
