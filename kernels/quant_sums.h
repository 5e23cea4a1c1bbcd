// The order in which parameter gradients and squared errors are summed, the same on CPU and GPU and
// for any number of threads.
//
// The elements of a set, in logical order, are cut into chunks. Within a chunk term k goes to lane
// k % kSumLanes, each lane adds from its first term to its last in the terms' type, and lanes are
// added in halves (l and l + 16, then l and l + 8 ...). The sums of the chunks are doubles: chunk c
// goes to lane c % kTotalLanes, lanes are added in halves again.
#pragma once

#include <cstddef>
#include <cstdint>

#include "steelyard/kernels/quant_problem.h"

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

// lanes[0] becomes the sum, added in halves. kLanes is a power of two.
template <int kLanes, typename T>
T add_in_halves(T* lanes) {
  if constexpr (kLanes == 1) {
    return lanes[0];
  } else {
    constexpr int kHalf = kLanes / 2;
    for (int lane = 0; lane < kHalf; ++lane) lanes[lane] += lanes[lane + kHalf];
    return add_in_halves<kHalf>(lanes);
  }
}

// The sum of one chunk's terms: term(i) for i in [0, count).
template <typename T, typename Term>
double sum_chunk(std::int64_t count, const Term& term) {
  constexpr int kTogether = sizeof(T) == sizeof(float) ? kSumLanes : 8;  // lanes in registers
  T lanes[kSumLanes] = {};
  const std::int64_t whole = count / kSumLanes * kSumLanes;
  for (int first = 0; first < kSumLanes; first += kTogether) {
    T sums[kTogether] = {};
    for (std::int64_t i = first; i < whole; i += kSumLanes) {
      for (int lane = 0; lane < kTogether; ++lane) sums[lane] += term(i + lane);
    }
    for (int lane = 0; lane < kTogether; ++lane) lanes[first + lane] = sums[lane];
  }
  for (std::int64_t i = whole; i < count; ++i) lanes[i - whole] += term(i);
  return static_cast<double>(add_in_halves<kSumLanes>(lanes));
}

inline double sum_of_chunks(const double* chunks, std::int64_t count) {
  if (count == 1) return 0.0 + chunks[0];
  double lanes[kTotalLanes] = {};
  for (std::int64_t c = 0; c < count; ++c) lanes[c % kTotalLanes] += chunks[c];
  return add_in_halves<kTotalLanes>(lanes);
}

}  // namespace steelyard::kernels
