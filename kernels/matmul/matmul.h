// Dense matrix product on row-major matrices.
#pragma once

#include <cstdint>

#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/run.h"
#include "steelyard/kernels/watch.h"

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

// Writes C (k = 0 gives zeros; m or n = 0 is a no-op). `products` are the CPU's means; a GPU's are
// its queue's.
template <typename T>
struct Matmul {
  MatmulShape shape;
  const T *a, *b;
  T *c;
  CpuProducts products = default_products();
  ProductWork work() const {
    return {.multiply_adds = shape.m * shape.n * shape.k, .over_rows = shape.transpose_a};
  }
};

using MatmulKernels = ForFloats<Matmul>;

}  // namespace steelyard::kernels
