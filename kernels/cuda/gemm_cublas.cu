#include <cublas_v2.h>

#include <type_traits>

#include "steelyard/kernels/cuda/cuda_memory.h"
#include "steelyard/kernels/cuda/gemm.h"
#include "steelyard/kernels/cuda/stream_handles.h"

namespace steelyard::kernels::cuda {
namespace {

// The size that NVIDIA recommends for Hopper.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

void require(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error("[cuda] " + std::string(call) + ": " + cublasGetStatusName(status));
}

void* allocate_workspace(const CudaQueue& queue) {
  void* workspace = cuda_allocate(kWorkspaceBytes);
  if (workspace == nullptr && queue.scratch != nullptr) {
    queue.scratch->release_unused();
    workspace = cuda_allocate(kWorkspaceBytes);
  }
  if (workspace != nullptr) return workspace;
  throw std::runtime_error("out of memory on the GPU: asked for " +
                           std::to_string(kWorkspaceBytes) + " bytes for cuBLAS");
}

// cuBLAS gets a workspace from us. One that it allocates itself may differ from call to call, which
// would change the order of sums, and which a CUDA graph cannot contain.
cublasHandle_t make_handle(const CudaQueue& queue) {
  void* workspace = allocate_workspace(queue);
  cublasHandle_t handle = nullptr;
  require(cublasCreate(&handle), "cublasCreate");
  require(cublasSetStream(handle, stream_of(queue)), "cublasSetStream");
  require(cublasSetWorkspace(handle, workspace, kWorkspaceBytes), "cublasSetWorkspace");
  return handle;
}

StreamHandles<cublasHandle_t>& handles() {
  static auto* all = new StreamHandles<cublasHandle_t>(make_handle);
  return *all;
}

struct Types {
  cudaDataType operand;
  cudaDataType product;
  cublasComputeType_t compute;
};

cublasOperation_t operation(bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; }

// Row-major matrices are the transposes of cuBLAS's: C^T = op(B)^T op(A)^T. Alpha and beta have the
// type that is summed in.
template <typename T>
void multiply(const CudaQueue& queue, const GemmShape& s, const Types& types, const void* a,
              const void* b, T* c) {
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const Sum alpha = 1;
  const Sum beta = s.accumulate ? 1 : 0;
  handles().with(queue, [&](cublasHandle_t handle) {
    require(cublasGemmStridedBatchedEx_64(
                handle, operation(s.transpose_b), operation(s.transpose_a), s.n, s.m, s.k, &alpha,
                b, types.operand, s.stored_row_b(), s.batch_stride_b, a, types.operand,
                s.stored_row_a(), s.batch_stride_a, &beta, c, types.product, s.stored_row_c(),
                s.batch_stride_c, s.batches, types.compute, CUBLAS_GEMM_DEFAULT),
            "cublasGemmStridedBatchedEx");
  });
}

template <typename T>
void clear(const CudaQueue& queue, const GemmShape& s, T* c) {
  for (std::int64_t batch = 0; batch < s.batches; ++batch) {
    check(cudaMemset2DAsync(c + batch * s.batch_stride_c, s.stored_row_c() * sizeof(T), 0,
                            s.n * sizeof(T), s.m, stream_of(queue)),
          "cudaMemset2DAsync", __FILE__, __LINE__);
  }
}

template <typename T>
void multiply_or_clear(const CudaQueue& queue, const GemmShape& s, const Types& types,
                       const void* a, const void* b, T* c) {
  if (s.m == 0 || s.n == 0 || s.batches == 0) return;
  if (s.k > 0) return multiply(queue, s, types, a, b, c);
  if (!s.accumulate) clear(queue, s, c);
}

cublasComputeType_t compute_type(MatmulPrecision precision) {
  switch (precision) {
    case MatmulPrecision::kTf32:
      return CUBLAS_COMPUTE_32F_FAST_TF32;
    case MatmulPrecision::kBf16:
      return CUBLAS_COMPUTE_32F_FAST_16BF;
    case MatmulPrecision::kFloat32:
      break;
  }
  return CUBLAS_COMPUTE_32F;
}

template <typename T>
Types types_of(MatmulPrecision precision) {
  if constexpr (std::is_same_v<T, double>) return {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F};
  return {CUDA_R_32F, CUDA_R_32F, compute_type(precision)};
}

}  // namespace

template <typename T>
void gemm(const CudaQueue& queue, const GemmShape& shape, const T* a, const T* b, T* c) {
  multiply_or_clear(queue, shape, types_of<T>(queue.precision), a, b, c);
}
template void gemm(const CudaQueue&, const GemmShape&, const float*, const float*, float*);
template void gemm(const CudaQueue&, const GemmShape&, const double*, const double*, double*);

void gemm_bf16(const CudaQueue& queue, const GemmShape& shape, const std::uint16_t* a,
               const std::uint16_t* b, float* c) {
  multiply_or_clear(queue, shape, {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F}, a, b, c);
}
void gemm_bf16(const CudaQueue& queue, const GemmShape& shape, const std::uint16_t* a,
               const std::uint16_t* b, std::uint16_t* c) {
  multiply_or_clear(queue, shape, {CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F}, a, b, c);
}

}  // namespace steelyard::kernels::cuda
