#include "kernels/counter.h"

#include "kernels/cuda/grid.h"

namespace steelyard::kernels {
namespace {

using cuda::kThreads;

// One block.
__global__ void __launch_bounds__(kThreads)
    add_counts_kernel(std::int64_t n, const std::int64_t* counts, std::int64_t* total) {
  std::int64_t* sums = cuda::shared_memory<std::int64_t>();
  const int thread = static_cast<int>(threadIdx.x);
  std::int64_t sum = 0;
  for (std::int64_t i = thread; i < n; i += kThreads) sum += counts[i];
  sums[thread] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) sums[thread] += sums[thread + half];
  }
  if (thread == 0) *total += sums[0];
}

__global__ void count_one_kernel(std::int64_t* counter) { ++*counter; }

}  // namespace

void add_counts(const CudaQueue& queue, std::int64_t n, const std::int64_t* counts,
                std::int64_t* total) {
  cuda::launch(add_counts_kernel, {1, kThreads, kThreads * sizeof(std::int64_t)},
               cuda::stream_of(queue), n, counts, total);
}

void count_one(const CudaQueue& queue, std::int64_t* counter) {
  cuda::launch(count_one_kernel, {1, 1}, cuda::stream_of(queue), counter);
}

}  // namespace steelyard::kernels
