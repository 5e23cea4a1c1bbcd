// What blocks share that search a channel's histogram.
#pragma once

#include "steelyard/kernels/cuda/grid.h"
#include "steelyard/kernels/prefix_sums.h"
#include "steelyard/kernels/quant_plan/range_choice.h"

namespace steelyard::kernels::cuda {

// Shared memory of block_prefix_sums() and block_least().
inline std::size_t search_bytes(std::int64_t bins) {
  const std::int64_t chunks = (bins + kPrefixChunk - 1) / kPrefixChunk;
  return static_cast<std::size_t>(chunks > kThreads ? chunks : kThreads) * sizeof(Least);
}

// prefix_sums() by all threads of a block, which see the sums afterwards. `shared` is
// search_bytes(n).
template <typename Term>
__device__ void block_prefix_sums(std::int32_t n, const Term& term, double* sums, void* shared) {
  double* before = static_cast<double*>(shared);
  const std::int32_t chunks = (n + kPrefixChunk - 1) / kPrefixChunk;
  __syncthreads();  // until the shared memory has been read
  for (std::int32_t c = static_cast<std::int32_t>(threadIdx.x); c < chunks; c += kThreads) {
    const std::int32_t first = c * kPrefixChunk;
    double within = 0;
    for (std::int32_t i = first; i < n && i < first + kPrefixChunk; ++i) {
      sums[i] = within;
      within += term(i);
    }
    before[c] = within;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    double sum = 0;
    for (std::int32_t c = 0; c < chunks; ++c) {
      const double within = before[c];
      before[c] = sum;
      sum += within;
    }
    sums[n] = sum;
  }
  __syncthreads();
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < n; i += kThreads) {
    sums[i] = before[i / kPrefixChunk] + sums[i];
  }
  __syncthreads();
}

// The least of all threads' values, for every thread. `shared` is search_bytes(0).
__device__ inline Least block_least(const Least& mine, void* shared) {
  Least* all = static_cast<Least*>(shared);
  __syncthreads();  // until the shared memory has been read
  all[threadIdx.x] = mine;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) {
      const Least& other = all[threadIdx.x + half];
      all[threadIdx.x].meet(other.value, other.index);
    }
  }
  __syncthreads();
  return all[0];
}

}  // namespace steelyard::kernels::cuda
