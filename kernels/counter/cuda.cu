#include "steelyard/kernels/counter/counter.h"

#include "steelyard/kernels/cuda/run.h"

namespace steelyard::kernels {

using cuda::kThreads;

// One block.
static __global__ void __launch_bounds__(kThreads) add_counts_kernel(AddCounts k) {
  std::int64_t* sums = cuda::shared_memory<std::int64_t>();
  const int thread = static_cast<int>(threadIdx.x);
  std::int64_t sum = 0;
  for (std::int64_t i = thread; i < k.n; i += kThreads) sum += k.counts[i];
  sums[thread] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) sums[thread] += sums[thread + half];
  }
  if (thread == 0) *k.total += sums[0];
}

static void compute(const CudaQueue& queue, const AddCounts& kernel) {
  cuda::launch(add_counts_kernel, {1, kThreads, kThreads * sizeof(std::int64_t)},
               cuda::stream_of(queue), kernel);
}

template struct CudaKernels<CounterKernels>;

}  // namespace steelyard::kernels
