#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/norm_fold/norm_fold.h"

namespace steelyard::kernels {
namespace {

using cuda::kThreads;

// One block, one channel.
template <typename T>
__global__ void __launch_bounds__(kThreads) weight_backward_kernel(FoldWeightBackward<T> k) {
  double* sums = cuda::shared_memory<double>();
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t c = blockIdx.x;
  const double factor = static_cast<double>(k.gamma[c]) / k.std_dev[c];
  double sum = 0;
  for (std::int64_t i = c * k.inner + thread; i < (c + 1) * k.inner; i += kThreads) {
    const double grad = static_cast<double>(k.grad_folded[i]);
    k.grad_weight[i] = static_cast<T>(grad * factor);
    sum += grad * static_cast<double>(k.weight[i]);
  }
  sums[thread] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) sums[thread] += sums[thread + half];
  }
  if (thread == 0) k.grad_gamma[c] = static_cast<T>(sums[0] / k.std_dev[c]);
}

}  // namespace

template <typename T>
void compute(const CudaQueue& queue, const FoldWeightBackward<T>& kernel) {
  cuda::launch(weight_backward_kernel<T>, {kernel.channels, kThreads, kThreads * sizeof(double)},
               cuda::stream_of(queue), kernel);
}

template struct CudaKernels<NormFoldKernels>;

}  // namespace steelyard::kernels
