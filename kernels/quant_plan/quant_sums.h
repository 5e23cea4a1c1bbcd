// The order in which parameter gradients and squared errors are summed, the same on CPU and GPU and
// for any number of threads.
//
// The elements of a set, in logical order, are cut into chunks. Within a chunk term k goes to lane
// k % kSumLanes, each lane adds to +0 from its first term to its last in the terms' type, and lanes
// are added in halves (l and l + 16, then l and l + 8 ...). The sums of the chunks are doubles:
// chunk c goes to lane c % kTotalLanes, lanes are added in halves again. kernels/cpu/chunk_sums.h
// and kernels/quant_plan/cuda_parameter_gradients.cu do so.
#pragma once

#include <cstddef>
#include <cstdint>

#include "steelyard/kernels/quant_plan/quant_problem.h"

namespace steelyard::kernels {

inline constexpr std::int64_t kSumChunk = 1024;
inline constexpr int kSumLanes = 32;
inline constexpr int kTotalLanes = 256;

STEELYARD_HOST_DEVICE inline std::int64_t sum_chunks_per_set(const SetMap& map) {
  return (map.largest_set() + kSumChunk - 1) / kSumChunk;
}

// Two doubles for each chunk: the scale's sums, then the zero point's.
inline std::size_t parameter_gradient_workspace(const QuantProblem& problem) {
  return static_cast<std::size_t>(problem.map.sets * sum_chunks_per_set(problem.map)) * 2 *
         sizeof(double);
}

}  // namespace steelyard::kernels
