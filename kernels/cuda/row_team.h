// The threads of a block that share a row, as OneThread (kernels/run.h) says.
#pragma once

#include <algorithm>
#include <bit>

#include "steelyard/kernels/cuda/block_sum.h"

namespace steelyard::kernels::cuda {

struct RowTeam {
  int lanes, lane;
  bool has_row;
  void* shared;  // kSharedBytes

  static constexpr std::size_t kLargestJoined = 16;
  static constexpr std::size_t kSharedBytes = kThreads * kLargestJoined;

  template <class F>
  __device__ void each(std::int64_t n, const F& f) const {
    for (std::int64_t c = lane; has_row && c < n; c += lanes) f(c);
  }
  template <typename T, class F>
  __device__ T largest(std::int64_t n, const F& value) const {
    const auto larger = [](T a, T b) { return a > b ? a : b; };
    T best = -static_cast<T>(INFINITY);
    each(n, [&](std::int64_t c) { best = larger(value(c), best); });
    return joined(best, larger);
  }
  template <typename T, class Join>
  __device__ T joined(const T& value, const Join& join) const {
    static_assert(sizeof(T) <= kLargestJoined);
    T* const all = static_cast<T*>(shared);
    join_lanes(lanes, value, all, join);
    __syncthreads();
    return all[static_cast<int>(threadIdx.x) - lane];
  }
  __device__ bool leads() const { return lane == 0 && has_row; }
};

// A power of two.
inline int lanes_of_row(std::int64_t columns) {
  constexpr std::int64_t kColumnsOfLane = 4;
  const auto wanted = static_cast<std::uint64_t>(columns / kColumnsOfLane);
  return static_cast<int>(std::clamp<std::uint64_t>(std::bit_ceil(wanted), 1, kThreads));
}

}  // namespace steelyard::kernels::cuda
