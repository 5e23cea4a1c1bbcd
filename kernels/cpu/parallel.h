// Static work sharing over OpenMP threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>

#include "steelyard/kernels/cpu/function_ref.h"

namespace steelyard::kernels {

// The part of parallel_for() that all bodies share: at most `parts` threads, each with one part.
[[gnu::noinline]] inline void run_parts(std::int64_t n, int parts,
                                        FunctionRef<void(std::int64_t, std::int64_t)> body) {
  std::exception_ptr fault;
  std::atomic_flag failed;
#pragma omp parallel num_threads(parts)
  {
    const std::int64_t threads = omp_get_num_threads();
    const std::int64_t part = (n + threads - 1) / threads;
    const std::int64_t begin = omp_get_thread_num() * part;
    const std::int64_t end = std::min(n, begin + part);
    try {
      if (begin < end) body(begin, end);
    } catch (...) {
      if (!failed.test_and_set()) fault = std::current_exception();
    }
  }
  if (fault) std::rethrow_exception(fault);
}

// Calls body(begin, end) on contiguous parts of [0, n), one part per thread and at least `grain`
// long (the last may be shorter). Runs inline when n <= grain or inside another parallel region;
// n <= 0 calls nothing. What a thread's body throws, as where memory runs out, is thrown here once
// all threads are done.
template <class F>
void parallel_for(std::int64_t n, std::int64_t grain, F&& body) {
  if (n <= 0) return;
  const std::int64_t most = (n + grain - 1) / grain;
  const std::int64_t parts = std::min<std::int64_t>(omp_get_max_threads(), most);
  if (parts <= 1 || omp_in_parallel()) {
    body(std::int64_t{0}, n);
    return;
  }
  run_parts(n, static_cast<int>(parts), body);
}

}  // namespace steelyard::kernels
