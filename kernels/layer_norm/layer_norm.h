// Layer normalization: every row of a [rows, columns] matrix by its own mean and variance.
// Source: Ba et al., "Layer Normalization", 2016, arXiv:1607.06450.
#pragma once

#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// y = (x - mean) * inv_std * gamma + beta with inv_std = 1 / sqrt(biased variance + eps); moments
// in double. mean and inv_std [rows] are written for backward.
template <typename T>
struct LayerNorm {
  std::int64_t rows, columns;
  const T *x, *gamma, *beta;
  double eps;
  T *y, *mean, *inv_std;
};

// Gradients; grad_gamma and grad_beta [columns] are overwritten, in an order that does not depend
// on the number of threads. Each of the three may be null.
template <typename T>
struct LayerNormBackward {
  std::int64_t rows, columns;
  const T *x, *grad_y, *mean, *inv_std, *gamma;
  T *grad_x, *grad_gamma, *grad_beta;
};

using LayerNormKernels = ForFloats<LayerNorm, LayerNormBackward>;

}  // namespace steelyard::kernels
