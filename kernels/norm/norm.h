// Batch normalization over the rows of a [rows, channels] matrix (NHWC: rows = N*H*W).
// Source: Ioffe and Szegedy, "Batch Normalization", 2015.
#pragma once

#include <tuple>

#include "steelyard/kernels/norm/formulas.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// Per-channel mean and biased variance over all rows, accumulated in double (on the CPU after eight
// rows in T), in an order that does not depend on the number of threads.
template <typename T>
struct BatchMoments {
  std::int64_t rows, channels;
  const T *x;
  T *mean, *variance;
};

// inv_std = 1 / sqrt(variance + eps), in double, and slope = inv_std * gamma of n channels.
template <typename T>
struct InverseStd {
  std::int64_t n;
  const T *variance, *gamma;
  double eps;
  T *inv_std, *slope;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    inv_std[c] = static_cast<T>(inverse_std_of(static_cast<double>(variance[c]), eps));
    slope[c] = inv_std[c] * gamma[c];
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

// y = (x - mean) * slope + beta, per channel; slope = inv_std * gamma.
template <typename T>
struct BatchNorm {
  std::int64_t rows, channels;
  const T *x, *mean, *slope, *beta;
  T *y;

  static constexpr auto per_channel() {
    return std::tuple{&BatchNorm::mean, &BatchNorm::slope, &BatchNorm::beta};
  }
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i, std::int64_t c) const {
    y[i] = (x[i] - mean[c]) * slope[c] + beta[c];
  }
};

// Gradients with batch statistics (mean and variance depend on x) or with fixed ones. grad_gamma
// and grad_beta are overwritten; grad_x may be null. Made of the three kernels below.
template <typename T>
struct BatchNormBackward {
  std::int64_t rows, channels;
  bool batch_statistics;
  const T *x, *grad_y, *mean, *inv_std, *gamma;
  T *grad_x, *grad_gamma, *grad_beta;
};

// grad_gamma, grad_beta, slope and, where they are not null, what InputOfBatchStatistics subtracts.
template <typename T>
struct BatchNormSums {
  static constexpr int kTerms = 2;
  std::int64_t rows, channels;
  const T *x, *grad_y, *mean, *inv_std, *gamma;
  T *grad_gamma, *grad_beta, *slope, *shift, *factor;

  static constexpr auto per_channel() { return std::tuple{&BatchNormSums::mean}; }
  template <int n>
  STEELYARD_HOST_DEVICE T term(std::int64_t i, std::int64_t c) const {
    return n == 0 ? grad_y[i] : grad_y[i] * (x[i] - mean[c]);
  }
  STEELYARD_HOST_DEVICE void finish(std::int64_t c, const double (&sums)[2]) const {
    const auto inverse = static_cast<double>(inv_std[c]);
    grad_beta[c] = static_cast<T>(sums[0]);
    grad_gamma[c] = static_cast<T>(sums[1] * inverse);
    slope[c] = inv_std[c] * gamma[c];
    if (shift == nullptr) return;
    const auto count = static_cast<double>(rows);
    shift[c] = static_cast<T>(sums[0] / count);
    factor[c] = static_cast<T>(sums[1] / count * inverse * inverse);
  }
};
// grad_x = slope * (grad_y - mean(grad_y) - xhat * mean(grad_y * xhat)).
template <typename T>
struct InputOfBatchStatistics {
  std::int64_t rows, channels;
  const T *x, *grad_y, *mean, *slope, *shift, *factor;
  T *grad_x;

  static constexpr auto per_channel() {
    using K = InputOfBatchStatistics;
    return std::tuple{&K::mean, &K::slope, &K::shift, &K::factor};
  }
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i, std::int64_t c) const {
    grad_x[i] = slope[c] * ((grad_y[i] - shift[c]) - (x[i] - mean[c]) * factor[c]);
  }
};
// grad_x = slope * grad_y.
template <typename T>
struct InputOfFixedStatistics {
  std::int64_t rows, channels;
  const T *grad_y, *slope;
  T *grad_x;

  static constexpr auto per_channel() { return std::tuple{&InputOfFixedStatistics::slope}; }
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i, std::int64_t c) const {
    grad_x[i] = grad_y[i] * slope[c];
  }
};

// Runs the parts of a backward pass by run(part); `memory` is 3 * channels T.
template <typename T, class Run>
void run_parts(const BatchNormBackward<T> &k, T *memory, const Run &run) {
  T *const slope = memory, *const factor = slope + 2 * k.channels;
  T *const shift = k.batch_statistics ? slope + k.channels : nullptr;
  run(BatchNormSums<T>{k.rows, k.channels, k.x, k.grad_y, k.mean, k.inv_std, k.gamma, k.grad_gamma,
                       k.grad_beta, slope, shift, factor});
  if (k.grad_x == nullptr) return;
  if (k.batch_statistics) {
    run(InputOfBatchStatistics<T>{k.rows, k.channels, k.x, k.grad_y, k.mean, slope, shift, factor,
                                  k.grad_x});
  } else {
    run(InputOfFixedStatistics<T>{k.rows, k.channels, k.grad_y, slope, k.grad_x});
  }
}

using NormKernels = JoinedKernels<
    ForFloats<BatchMoments, InverseStd, BatchNorm, BatchNormBackward, MoveByGatheredMoments>,
    KernelList<MoveRunningStatistics<float, float>, MoveRunningStatistics<float, double>,
               MoveRunningStatistics<double, float>, MoveRunningStatistics<double, double>,
               GatherMoments<float, float>, GatherMoments<float, double>,
               GatherMoments<double, float>, GatherMoments<double, double>>>;

}  // namespace steelyard::kernels
