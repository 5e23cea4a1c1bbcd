// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/cuda/gemm.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels::cuda {

template <typename T>
void gemm(const CudaQueue&, const GemmShape&, const T*, const T*, T*) {
  cuda_is_absent();
}
template void gemm(const CudaQueue&, const GemmShape&, const float*, const float*, float*);
template void gemm(const CudaQueue&, const GemmShape&, const double*, const double*, double*);

void gemm_bf16(const CudaQueue&, const GemmShape&, const std::uint16_t*, const std::uint16_t*,
               float*) {
  cuda_is_absent();
}

}  // namespace steelyard::kernels::cuda
