#include <Eigen/Core>
#include <algorithm>

#include "steelyard/kernels/cpu/onednn/kernels.h"
#include "steelyard/kernels/cpu/rounded_operands.h"
#include "steelyard/kernels/cpu/run.h"

namespace steelyard::kernels {
namespace {

template <typename T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <typename T>
void by_eigen(const Matmul<T>& k) {
  const MatmulShape& s = k.shape;
  const Eigen::Map<const Matrix<T>> left(k.a, s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k);
  const Eigen::Map<const Matrix<T>> right(k.b, s.transpose_b ? s.n : s.k,
                                          s.transpose_b ? s.k : s.n);
  Eigen::Map<Matrix<T>> product(k.c, s.m, s.n);
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
void compute(const Matmul<T>& given) {
  Matmul<T> k = given;
  const MatmulShape& s = k.shape;
  if (s.m == 0 || s.n == 0) return;
  if (s.k == 0) {
    std::fill_n(k.c, s.m * s.n, T(0));
    return;
  }
  const RoundedOperands rounded(k.products, k.a, s.m * s.k, k.b, s.k * s.n);
  if (!onednn::computes(k)) by_eigen(k);
}

template struct CpuKernels<MatmulKernels>;

}  // namespace steelyard::kernels
