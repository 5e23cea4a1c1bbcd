// Products of row-major matrices on a GPU: the seam to cuBLAS.
//
// Tests replace kernels/cuda/gemm_cublas.cu by sums on the host (tests/support/cuda_emulation).
#pragma once

#include <cstdint>

#include "steelyard/kernels/cuda_queue.h"

namespace steelyard::kernels::cuda {

// For every batch: C = op(A) op(B), or C += ... where `accumulate` is set. op(A) is [m, k], op(B)
// [k, n], C [m, n]; op is the transpose where the flag is set (A is then stored [k, m], B [n, k]).
// Strides count elements.
struct GemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  // From row to row of the stored matrix; 0: its rows are dense.
  std::int64_t row_stride_a = 0;
  std::int64_t row_stride_b = 0;
  std::int64_t row_stride_c = 0;
  std::int64_t batches = 1;
  // From batch to batch.
  std::int64_t batch_stride_a = 0;
  std::int64_t batch_stride_b = 0;
  std::int64_t batch_stride_c = 0;

  std::int64_t stored_row_a() const {
    return row_stride_a > 0 ? row_stride_a : transpose_a ? m : k;
  }
  std::int64_t stored_row_b() const {
    return row_stride_b > 0 ? row_stride_b : transpose_b ? k : n;
  }
  std::int64_t stored_row_c() const { return row_stride_c > 0 ? row_stride_c : n; }
};

// T is float or double; floats are multiplied with queue.precision. k = 0 gives zeros (or leaves C
// that is accumulated into). The same call on the same GPU gives the same bits. Throws
// std::runtime_error with the name that cuBLAS has for the failure.
template <typename T>
void gemm(const CudaQueue& queue, const GemmShape& shape, const T* a, const T* b, T* c);

// gemm() of operands that are bits of bfloat16, summed in float: exact for integers of up to 8 bits
// as long as every sum of magnitudes stays within 2^24.
void gemm_bf16(const CudaQueue& queue, const GemmShape& shape, const std::uint16_t* a,
               const std::uint16_t* b, float* c);
// gemm_bf16() with its sums rounded to bfloat16.
void gemm_bf16(const CudaQueue& queue, const GemmShape& shape, const std::uint16_t* a,
               const std::uint16_t* b, std::uint16_t* c);

}  // namespace steelyard::kernels::cuda
