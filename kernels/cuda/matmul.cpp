// Host code only: a build without CUDA lacks just what it calls.
#include "steelyard/kernels/matmul.h"

#include "steelyard/kernels/cuda/gemm.h"

namespace steelyard::kernels {

template <typename T>
void matmul(const CudaQueue& queue, const MatmulShape& s, const T* a, const T* b, T* c) {
  cuda::gemm(
      queue,
      {.m = s.m, .n = s.n, .k = s.k, .transpose_a = s.transpose_a, .transpose_b = s.transpose_b}, a,
      b, c);
}

template void matmul(const CudaQueue&, const MatmulShape&, const float*, const float*, float*);
template void matmul(const CudaQueue&, const MatmulShape&, const double*, const double*, double*);

}  // namespace steelyard::kernels
