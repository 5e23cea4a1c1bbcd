// Dense matrix product on row-major matrices.
#pragma once

#include <cstdint>

#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/cuda_queue.h"

namespace steelyard::kernels {

// One product C = op(A) op(B): op(A) is [m, k], op(B) is [k, n], C is [m, n], all dense row-major,
// where op is the transpose when the flag is set (A is then stored [k, m], B [n, k]).
struct MatmulShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
};

// Writes C (k = 0 gives zeros; m or n = 0 is a no-op). T is float or double.
template <typename T>
void matmul(CpuProducts products, const MatmulShape& shape, const T* a, const T* b, T* c);

// The same as default_products().
template <typename T>
void matmul(const MatmulShape& shape, const T* a, const T* b, T* c) {
  matmul(default_products(), shape, a, b, c);
}

// The same on a GPU.
template <typename T>
void matmul(const CudaQueue& queue, const MatmulShape& shape, const T* a, const T* b, T* c);

}  // namespace steelyard::kernels
