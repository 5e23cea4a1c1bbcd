// Elementwise loops over all threads.
#pragma once

#include <cstdint>

#include "steelyard/kernels/cpu/parallel.h"

namespace steelyard::kernels {

constexpr std::int64_t kMapGrain = 16384;  // elements per thread that pay for waking it

// Calls body(i) for every i, in vectors. Every part of the work has a copy of body, so that stores
// through its pointers cannot change them.
template <class Body>
void map(std::int64_t n, const Body& body) {
  parallel_for(n, kMapGrain, [&](std::int64_t begin, std::int64_t end) {
    const Body own = body;
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) own(i);
  });
}

}  // namespace steelyard::kernels
