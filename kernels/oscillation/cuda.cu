#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/oscillation/oscillation.h"

namespace steelyard::kernels {

using cuda::kThreads;

static __global__ void __launch_bounds__(kThreads) count_kernel(CountOscillations k) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  unsigned long long held = 0;
  unsigned long long oscillating = 0;
  for (std::int64_t i = cuda::element_index(); i < k.n; i += step) {
    held += k.state.frozen[i];
    oscillating += k.state.frozen[i] == 0 && k.state.frequency[i] > k.frequency ? 1 : 0;
  }
  for (int half = warpSize / 2; half > 0; half /= 2) {
    held += __shfl_down_sync(cuda::kFullWarp, held, half);
    oscillating += __shfl_down_sync(cuda::kFullWarp, oscillating, half);
  }
  if (threadIdx.x % warpSize != 0) return;
  auto* const counts = reinterpret_cast<unsigned long long*>(k.counts);
  if (held != 0) atomicAdd(counts, held);
  if (oscillating != 0) atomicAdd(counts + 1, oscillating);
}

static void compute(const CudaQueue& queue, const CountOscillations& kernel) {
  constexpr std::int64_t kMostBlocks = 1024;
  run(queue, Fill<std::int64_t>{.n = 2, .value = 0, .y = kernel.counts});
  cuda::launch(count_kernel, {std::min(kMostBlocks, cuda::blocks_for(kernel.n)), kThreads},
               cuda::stream_of(queue), kernel);
}

template struct CudaKernels<OscillationKernels>;

}  // namespace steelyard::kernels
