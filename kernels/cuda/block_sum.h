// Reductions over the threads of a block, in an order that never changes.
#pragma once

#include "steelyard/kernels/cuda/grid.h"

namespace steelyard::kernels::cuda {

inline constexpr unsigned kFullWarp = 0xFFFFFFFFU;

// Elements that one block of kThreads reduces.
inline constexpr std::int64_t kSumBlock = std::int64_t{8} * kThreads;

inline std::int64_t sum_blocks(std::int64_t n) { return (n + kSumBlock - 1) / kSumBlock; }

// Shared memory of block_reduce().
inline std::size_t reduce_bytes(int threads) {
  return static_cast<std::size_t>(threads) / 32 * sizeof(double);
}

// combine() over the values of all threads, for every thread. The block has whole warps and calls
// together; `lanes` is reduce_bytes() of shared memory. combine(a, b) is combine(b, a).
template <typename Combine>
__device__ double block_reduce(double value, double* lanes, const Combine& combine) {
  for (int half = 16; half > 0; half /= 2) {
    value = combine(value, __shfl_xor_sync(kFullWarp, value, half));
  }
  const int warps = static_cast<int>(blockDim.x / 32);
  if (warps == 1) return value;
  __syncthreads();  // until the last reduction has been read
  if (threadIdx.x % 32 == 0) lanes[threadIdx.x / 32] = value;
  __syncthreads();
  value = lanes[0];
  for (int warp = 1; warp < warps; ++warp) value = combine(value, lanes[warp]);
  return value;
}

struct Plus {
  __device__ double operator()(double a, double b) const { return a + b; }
};
struct Larger {
  __device__ double operator()(double a, double b) const { return a > b ? a : b; }
};

__device__ inline double block_sum(double value, double* lanes) {
  return block_reduce(value, lanes, Plus());
}

// What groups of `lanes` neighbouring threads found, joined in halves, in the first of each.
// `lanes` is a power of two; `all` is shared memory, one for each thread of the block, which calls
// together.
template <typename T, class Join>
__device__ T join_lanes(int lanes, const T& mine, T* all, const Join& join) {
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();  // until the last values have been read
  all[thread] = mine;
  for (int half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread % lanes < half) all[thread] = join(all[thread], all[thread + half]);
  }
  return all[thread];
}

}  // namespace steelyard::kernels::cuda
