// The emulation that other tests trust with CUDA kernels: right kernels give right results in every
// order, and planted mistakes of the usual kinds are found.
#include "tests/support/cuda_emulation/emulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "steelyard/kernels/cuda/block_sum.h"
#include "steelyard/kernels/cuda/launch.h"
#include "tests/support/cuda_emulation/members.h"
#include "tests/support/cuda_emulation/sanitizer.h"

namespace steelyard::kernels::cuda {
namespace {

using emulation::for_each_order;
using emulation::Options;
using emulation::Order;
using emulation::ScopedOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

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
    value += __shfl_down_sync(kFullWarp, value, static_cast<unsigned>(distance));
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
  EXPECT_THAT(distinct_results(block_sums<Mistake::kNone>), ::testing::ElementsAre(right_sums()));
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
              ::testing::ElementsAre(0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5));
  EXPECT_THAT(recorded_order(Order::kReverse),
              ::testing::ElementsAre(5, 4, 3, 5, 4, 3, 2, 1, 0, 2, 1, 0));
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
    __shfl_xor_sync(kFullWarp, 1.0F, 1);
  }
}

__global__ void different_masks() { __ballot_sync(threadIdx.x < 8 ? 0xFFFFU : kFullWarp, 1); }
__global__ void foreign_mask() { __any_sync(0x2U, 1); }
__global__ void bad_width() { __shfl_sync(kFullWarp, 1, 0, 24); }

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

// ---- The pointers of a kernel's struct

struct Part {
  const int* from;
  std::int64_t n;
};
struct Whole {
  std::int64_t rows;
  Part part;
  double factor;
  int *to, *more;
};

struct CollectPointers {
  std::vector<const void*>* found;

  template <typename T>
  void operator()(const T& member) const {
    if constexpr (std::is_pointer_v<T>) {
      found->push_back(member);
    } else if constexpr (std::is_class_v<T>) {
      emulation::each_member(member, *this);
    }
  }
};

TEST(CudaEmulation, EveryMemberOfAStructIsVisited) {
  int values[3] = {};
  std::vector<const void*> found;
  CollectPointers{&found}(Whole{1, {values, 2}, 3, values + 1, values + 2});
  EXPECT_THAT(found, ::testing::ElementsAre(values, values + 1, values + 2));
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
      {-1, 64}, {std::int64_t{1} << 31, 64}, {1, 0}, {1, 1025}, {1, 1, 99 * 1024 + 1}};
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
  EXPECT_THAT(sums, ::testing::Each(255 * 256 / 2));
  RecordProperty("grid_seconds", std::to_string(grid));
  RecordProperty("barrier_seconds", std::to_string(barriers));
  EXPECT_LT(grid, 2.0);
  EXPECT_LT(barriers, 5.0);
}

}  // namespace
}  // namespace steelyard::kernels::cuda
