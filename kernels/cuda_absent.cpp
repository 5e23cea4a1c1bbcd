// Stands in for the GPU in a build without CUDA: everything throws.
#include "steelyard/kernels/cuda_absent.h"

#include "steelyard/kernels/all_kernels.h"
#include "steelyard/kernels/cuda/cuda_graph.h"
#include "steelyard/kernels/cuda/cuda_memory.h"
#include "steelyard/kernels/cuda/gemm.h"

namespace steelyard::kernels {

template <class K>
void run(const CudaQueue &, const K &) {
  cuda_is_absent();
}
template struct CudaKernels<AllCudaKernels>;

bool cuda_is_available() { return false; }
int cuda_device_count() { return 0; }
std::string cuda_absence() { return "this build is without CUDA"; }
std::string cuda_device_problem(int) { return cuda_absence(); }
CudaIdentity cuda_identity(int) { cuda_is_absent(); }
void cuda_select_device(int) { cuda_is_absent(); }
int cuda_selected_device() { cuda_is_absent(); }
void *cuda_new_stream() { cuda_is_absent(); }
void cuda_release_stream(void *) noexcept {}
void cuda_synchronize(const CudaQueue &) { cuda_is_absent(); }
void cuda_wait_for(const CudaQueue &, const CudaQueue &) { cuda_is_absent(); }
void *cuda_allocate_pinned(std::size_t) { cuda_is_absent(); }
void cuda_release_pinned(void *) noexcept {}
void *cuda_allocate(std::size_t) { cuda_is_absent(); }
void cuda_release(void *) noexcept {}
void cuda_copy_to_device(const CudaQueue &, void *, const void *, std::size_t) { cuda_is_absent(); }
void cuda_copy_to_host(const CudaQueue &, void *, const void *, std::size_t) { cuda_is_absent(); }
void cuda_copy_on_device(const CudaQueue &, void *, const void *, std::size_t) { cuda_is_absent(); }

CudaGraph::~CudaGraph() = default;
void CudaGraph::begin(const CudaQueue &) { cuda_is_absent(); }
void CudaGraph::abandon(const CudaQueue &) noexcept {}
void CudaGraph::end(const CudaQueue &) { cuda_is_absent(); }
void CudaGraph::launch(const CudaQueue &) const { cuda_is_absent(); }

namespace cuda {

template <typename T>
void gemm(const CudaQueue &, const GemmShape &, const T *, const T *, T *) {
  cuda_is_absent();
}
template void gemm(const CudaQueue &, const GemmShape &, const float *, const float *, float *);
template void gemm(const CudaQueue &, const GemmShape &, const double *, const double *, double *);

void gemm_bf16(const CudaQueue &, const GemmShape &, const std::uint16_t *, const std::uint16_t *,
               float *) {
  cuda_is_absent();
}
void gemm_bf16(const CudaQueue &, const GemmShape &, const std::uint16_t *, const std::uint16_t *,
               std::uint16_t *) {
  cuda_is_absent();
}

}  // namespace cuda
}  // namespace steelyard::kernels
