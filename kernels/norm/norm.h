// Batch normalisation over the rows of a [rows, channels] matrix (NHWC: rows = N*H*W).
// Source: Ioffe and Szegedy, "Batch Normalization", 2015.
#pragma once

#include "steelyard/kernels/norm/formulas.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// Per-channel mean and biased variance over all rows, accumulated in double, in an order that does
// not depend on the number of threads.
template <typename T>
struct BatchMoments {
  std::int64_t rows, channels;
  const T *x;
  T *mean, *variance;
};

// inv_std = 1 / sqrt(variance + eps), in double, of n channels.
template <typename T>
struct InverseStd {
  std::int64_t n;
  const T *variance;
  double eps;
  T *inv_std;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    inv_std[c] = static_cast<T>(inverse_std_of(static_cast<double>(variance[c]), eps));
  }
};

// running = (1 - momentum) * running + momentum * batch, in double; the variance is times `factor`
// first. R too is float or double.
template <typename T, typename R>
struct MoveRunningStatistics {
  std::int64_t n;
  double momentum, factor;
  const T *mean, *variance;
  R *running_mean, *running_variance;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    running_mean[c] = static_cast<R>(moved_statistic(static_cast<double>(running_mean[c]), momentum,
                                                     static_cast<double>(mean[c])));
    running_variance[c] =
        static_cast<R>(moved_statistic(static_cast<double>(running_variance[c]), momentum,
                                       static_cast<double>(variance[c]) * factor));
  }
};

// y = (x - mean) * inv_std * gamma + beta, per channel.
template <typename T>
struct BatchNorm {
  std::int64_t rows, channels;
  const T *x, *mean, *inv_std, *gamma, *beta;
  T *y;
};

// Gradients with batch statistics (mean and variance depend on x) or with fixed ones. grad_gamma
// and grad_beta are overwritten; grad_x may be null.
template <typename T>
struct BatchNormBackward {
  std::int64_t rows, channels;
  bool batch_statistics;
  const T *x, *grad_y, *mean, *inv_std, *gamma;
  T *grad_x, *grad_gamma, *grad_beta;
};

using NormKernels = JoinedKernels<
    ForFloats<BatchMoments, InverseStd, BatchNorm, BatchNormBackward>,
    KernelList<MoveRunningStatistics<float, float>, MoveRunningStatistics<float, double>,
               MoveRunningStatistics<double, float>, MoveRunningStatistics<double, double>>>;

}  // namespace steelyard::kernels
