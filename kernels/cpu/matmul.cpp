#include "steelyard/kernels/matmul.h"

#include <Eigen/Core>
#include <algorithm>
#include <type_traits>

#include "steelyard/kernels/cpu/bf16_operands.h"
#include "steelyard/kernels/cpu/onednn_kernels.h"

namespace steelyard::kernels {
namespace {

template <typename T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <typename T>
void eigen_matmul(const MatmulShape& s, const T* a, const T* b, T* c) {
  const Eigen::Map<const Matrix<T>> left(a, s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k);
  const Eigen::Map<const Matrix<T>> right(b, s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n);
  Eigen::Map<Matrix<T>> product(c, s.m, s.n);
  if (s.transpose_a && s.transpose_b) {
    product.noalias() = left.transpose() * right.transpose();
  } else if (s.transpose_a) {
    product.noalias() = left.transpose() * right;
  } else if (s.transpose_b) {
    product.noalias() = left * right.transpose();
  } else {
    product.noalias() = left * right;
  }
}

}  // namespace

template <typename T>
void matmul(CpuProducts products, const MatmulShape& shape, const T* a, const T* b, T* c) {
  if (shape.m == 0 || shape.n == 0) return;
  if (shape.k == 0) {
    std::fill_n(c, shape.m * shape.n, T(0));
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    if (must_round_operands(products)) {
      const auto left = rounded_to_bf16(shape.m * shape.k, a);
      const auto right = rounded_to_bf16(shape.k * shape.n, b);
      return matmul<float>(products.backend, shape, left.get(), right.get(), c);
    }
    if (products.backend == Backend::kOneDnn) {
      return onednn::matmul(products.precision, shape, a, b, c);
    }
  }
  eigen_matmul(shape, a, b, c);
}

template void matmul(CpuProducts, const MatmulShape&, const float*, const float*, float*);
template void matmul(CpuProducts, const MatmulShape&, const double*, const double*, double*);

}  // namespace steelyard::kernels
