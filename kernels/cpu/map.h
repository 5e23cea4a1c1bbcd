// Elementwise loops over all threads.
#pragma once

#include <cstdint>

#include "kernels/cpu/parallel.h"

namespace steelyard::kernels {

constexpr std::int64_t kMapGrain = 16384;  // elements per thread that pay for waking it

// Calls body(i) for every i, in vectors.
template <class Body>
void map(std::int64_t n, Body&& body) {
  parallel_for(n, kMapGrain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace steelyard::kernels
