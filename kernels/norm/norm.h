// Batch normalization over the rows of a [rows, channels] matrix (NHWC: rows = N*H*W).
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

// sums[3, n] += count, sum and sum of squares of the deviations from running_mean, of `rows` values
// with these moments.
template <typename T, typename R>
struct GatherMoments {
  std::int64_t n;
  double rows;
  const T *mean, *variance;
  const R *running_mean;
  double *sums;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    const double offset = static_cast<double>(mean[c]) - static_cast<double>(running_mean[c]);
    sums[c] += rows;
    sums[n + c] += rows * offset;
    sums[2 * n + c] += rows * (static_cast<double>(variance[c]) + offset * offset);
  }
};

// MoveRunningStatistics by what GatherMoments gathered; fewer than two values move nothing.
template <typename R>
struct MoveByGatheredMoments {
  std::int64_t n;
  double momentum;
  const double *sums;
  R *running_mean, *running_variance;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    if (sums[c] < 2) return;
    const double near = static_cast<double>(running_mean[c]);
    const Moments batch = moments_about(sums[c], near, sums[n + c], sums[2 * n + c]);
    running_mean[c] = static_cast<R>(moved_statistic(near, momentum, batch.mean));
    running_variance[c] = static_cast<R>(moved_statistic(
        static_cast<double>(running_variance[c]), momentum, batch.squares / (batch.count - 1)));
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
    ForFloats<BatchMoments, InverseStd, BatchNorm, BatchNormBackward, MoveByGatheredMoments>,
    KernelList<MoveRunningStatistics<float, float>, MoveRunningStatistics<float, double>,
               MoveRunningStatistics<double, float>, MoveRunningStatistics<double, double>,
               GatherMoments<float, float>, GatherMoments<float, double>,
               GatherMoments<double, float>, GatherMoments<double, double>>>;

}  // namespace steelyard::kernels
