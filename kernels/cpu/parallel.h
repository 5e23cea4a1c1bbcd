// Static work sharing over OpenMP threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace steelyard::kernels {

// Calls body(begin, end) on contiguous parts of [0, n), one part per thread and at least `grain`
// long (the last may be shorter). Runs inline when n <= grain or inside another parallel region;
// n <= 0 calls nothing. body must not throw.
template <class F>
void parallel_for(std::int64_t n, std::int64_t grain, F&& body) {
  if (n <= 0) return;
  const std::int64_t most = (n + grain - 1) / grain;
  const std::int64_t parts = std::min<std::int64_t>(omp_get_max_threads(), most);
  if (parts <= 1 || omp_in_parallel()) {
    body(std::int64_t{0}, n);
    return;
  }
#pragma omp parallel num_threads(static_cast <int>(parts))
  {
    const std::int64_t threads = omp_get_num_threads();
    const std::int64_t part = (n + threads - 1) / threads;
    const std::int64_t begin = omp_get_thread_num() * part;
    const std::int64_t end = std::min(n, begin + part);
    if (begin < end) body(begin, end);
  }
}

}  // namespace steelyard::kernels
