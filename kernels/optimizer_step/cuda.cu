#include "steelyard/kernels/optimizer_step/optimizer_step.h"

#include "steelyard/kernels/cuda/run.h"

namespace steelyard::kernels {

struct Total {
  double* total;

  __device__ void finish(double sum) const { *total = sum; }
};

template <typename T>
__global__ void squares_kernel(cuda::TensorList<ValueTensor<T>> list, double* parts) {
  const cuda::ListedRange at = cuda::listed_range(list);
  const T* x = list.tensors[at.tensor].values;
  double sum = 0;
  for (std::int64_t i = at.begin + threadIdx.x; i < at.end; i += cuda::kThreads) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  sum = cuda::block_sum(sum, cuda::shared_memory<double>());
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

template <typename T>
void compute(const CudaQueue& queue, const SumOfSquares<T>& kernel) {
  std::int64_t blocks = 0;
  for (const ValueTensor<T>& t : kernel.tensors) blocks += cuda::sum_blocks(t.size);
  const cuda::Scratch<double> parts(queue, blocks);
  double* next = parts.data();
  cuda::for_each_list(kernel.tensors, [&](const cuda::TensorList<ValueTensor<T>>& list) {
    cuda::launch(squares_kernel<T>,
                 {list.blocks(), cuda::kThreads, cuda::reduce_bytes(cuda::kThreads)},
                 cuda::stream_of(queue), list, next);
    next += list.blocks();
  });
  cuda::finish(queue, Total{kernel.sum}, blocks, parts.data());
}

template struct CudaKernels<OptimizerStepKernels>;

}  // namespace steelyard::kernels
