#include "steelyard/kernels/cuda/gemm.h"
#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/matmul/matmul.h"

namespace steelyard::kernels {

template <typename T>
void compute(const CudaQueue& queue, const Matmul<T>& k) {
  const MatmulShape& s = k.shape;
  cuda::gemm(
      queue,
      {.m = s.m, .n = s.n, .k = s.k, .transpose_a = s.transpose_a, .transpose_b = s.transpose_b},
      k.a, k.b, k.c);
}

template struct CudaKernels<MatmulKernels>;

}  // namespace steelyard::kernels
