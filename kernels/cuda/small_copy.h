// Bytes of the host that travel as part of a launch: they were read when it returns, so that the
// host neither waits nor has to keep them.
#pragma once

#include <algorithm>
#include <cstring>

#include "steelyard/kernels/cuda/grid.h"

namespace steelyard::kernels::cuda {

// Every device takes 4 KiB of parameters.
struct SmallBytes {
  static constexpr std::int64_t kMost = 4000;

  unsigned char values[kMost];
};

// More than that is worth a copy of its own.
inline constexpr std::size_t kMostSmallBytes = 16 * SmallBytes::kMost;

static __global__ void __launch_bounds__(kThreads)
    small_copy_kernel(std::int64_t count, SmallBytes from, unsigned char* to) {
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) to[i] = from.values[i];
}

inline void small_copy(const CudaQueue& queue, void* to, const void* from, std::size_t bytes) {
  auto* next = static_cast<unsigned char*>(to);
  const auto* source = static_cast<const unsigned char*>(from);
  for (auto left = static_cast<std::int64_t>(bytes); left > 0; left -= SmallBytes::kMost) {
    const std::int64_t count = std::min(left, SmallBytes::kMost);
    SmallBytes part;
    std::memcpy(part.values, source, static_cast<std::size_t>(count));
    launch(small_copy_kernel, {.blocks = 1, .threads = kThreads}, stream_of(queue), count, part,
           next);
    source += count;
    next += count;
  }
}

}  // namespace steelyard::kernels::cuda
