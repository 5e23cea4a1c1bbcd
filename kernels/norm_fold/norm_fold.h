// What folding a batch norm into the layer before it computes per channel, in double. T is float or
// double, R the type of the running statistics; arrays have one value per channel unless said
// otherwise. `std_dev` = sqrt(running variance + eps).
#pragma once

#include <cmath>

#include "steelyard/kernels/layout.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

template <typename R>
struct RunningStd {
  std::int64_t n;
  const R* variance;
  double eps;
  double* std_dev;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    std_dev[c] = std::sqrt(static_cast<double>(variance[c]) + eps);
  }
};

// factor = gamma / std_dev.
template <typename T>
struct FoldFactor {
  std::int64_t n;
  const T* gamma;
  const double* std_dev;
  double* factor;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    factor[c] = static_cast<double>(gamma[c]) / std_dev[c];
  }
};

// folded [channels, inner] = weight * gamma / std_dev.
template <typename T>
struct FoldWeight {
  static constexpr std::int64_t kGrain = 16384;
  ChannelLayout layout;  // {1, channels, inner}
  const T *weight, *gamma;
  const double* std_dev;
  T* folded;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i, std::int64_t c) const {
    const double factor = static_cast<double>(gamma[c]) / std_dev[c];
    folded[i] = static_cast<T>(static_cast<double>(weight[i]) * factor);
  }
};
template <typename T>
struct FoldWeightBackward {
  std::int64_t rows, columns;  // channels, inner
  const T *weight, *gamma;
  const double* std_dev;
  const T* grad_folded;
  T *grad_weight, *grad_gamma;

  template <class Team>
  STEELYARD_HOST_DEVICE void row(std::int64_t c, const Team& team) const {
    const double factor = static_cast<double>(gamma[c]) / std_dev[c];
    double sum = 0;
    team.each(columns, [&](std::int64_t k) {
      const std::int64_t i = c * columns + k;
      const double grad = static_cast<double>(grad_folded[i]);
      grad_weight[i] = static_cast<T>(grad * factor);
      sum += grad * static_cast<double>(weight[i]);
    });
    sum = sum_of(team, sum);
    if (team.leads()) grad_gamma[c] = static_cast<T>(sum / std_dev[c]);
  }
};

// centred = bias - mean, folded = beta + centred * gamma / std_dev; bias may be null: 0.
template <typename T, typename R>
struct FoldBias {
  std::int64_t n;
  const T *bias, *gamma, *beta;
  const R* mean;
  const double* std_dev;
  double* centred;
  T* folded;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    const double b = bias == nullptr ? 0.0 : static_cast<double>(bias[c]);
    centred[c] = b - static_cast<double>(mean[c]);
    const double factor = static_cast<double>(gamma[c]) / std_dev[c];
    folded[c] = static_cast<T>(static_cast<double>(beta[c]) + centred[c] * factor);
  }
};
template <typename T>
struct FoldBiasBackward {
  std::int64_t n;
  const T *grad_folded, *gamma;
  const double *std_dev, *centred;
  T *grad_gamma, *grad_bias;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    const double g = static_cast<double>(grad_folded[c]) / std_dev[c];
    grad_gamma[c] = static_cast<T>(g * centred[c]);
    grad_bias[c] = static_cast<T>(g * static_cast<double>(gamma[c]));
  }
};

// y = x, but with its sign at least `smallest` in magnitude.
template <typename T>
struct KeepFromZero {
  std::int64_t n;
  T smallest;
  const T* x;
  T* y;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    y[i] = std::fabs(x[i]) < smallest ? std::copysign(smallest, x[i]) : x[i];
  }
};

// What a corrected norm takes from a batch's mean and variance: inv_std = 1 / sqrt(variance + eps),
// ratio = std_dev * inv_std, hidden_mean = gamma * mean / std_dev, shifted_mean = mean + offset;
// offset may be null: 0.
template <typename T>
struct CorrectedNormTerms {
  std::int64_t n;
  const T *gamma, *mean, *variance;
  double eps;
  const double* std_dev;
  const T* offset;
  T *inv_std, *ratio, *hidden_mean, *shifted_mean;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    const double m = static_cast<double>(mean[c]);
    inv_std[c] = static_cast<T>(1.0 / std::sqrt(static_cast<double>(variance[c]) + eps));
    ratio[c] = static_cast<T>(std_dev[c] * static_cast<double>(inv_std[c]));
    hidden_mean[c] = static_cast<T>(static_cast<double>(gamma[c]) * m / std_dev[c]);
    shifted_mean[c] =
        static_cast<T>(m + (offset == nullptr ? 0.0 : static_cast<double>(offset[c])));
  }
};
// grad_gamma, and the gradient of the raw product as (raw - mean) * slope + shift.
template <typename T>
struct CorrectedNormBackward {
  std::int64_t n, rows;
  const T *gamma, *mean, *inv_std, *grad_ratio, *grad_beta;
  T *grad_gamma, *slope, *shift;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    const double inverse = static_cast<double>(inv_std[c]);
    const double of_beta = static_cast<double>(grad_beta[c]);
    const double count = static_cast<double>(rows);
    grad_gamma[c] = static_cast<T>(-inverse * static_cast<double>(mean[c]) * of_beta);
    slope[c] = static_cast<T>(-inverse * inverse * static_cast<double>(grad_ratio[c]) / count);
    shift[c] = static_cast<T>(-static_cast<double>(gamma[c]) * inverse * of_beta / count);
  }
};

// The statistics of product / factor + offset from those of the product, inv_std = 1 / (factor *
// sqrt(variance + eps)) and slope = inv_std * gamma; offset may be null: 0.
template <typename T>
struct RecoveredNormTerms {
  std::int64_t n;
  const double* factor;
  const T *product_mean, *product_variance;
  double eps;
  const T *offset, *gamma;
  T *mean, *variance, *inv_std, *slope;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    const double f = factor[c];
    mean[c] = static_cast<T>(static_cast<double>(product_mean[c]) / f +
                             (offset == nullptr ? 0.0 : static_cast<double>(offset[c])));
    variance[c] = static_cast<T>(static_cast<double>(product_variance[c]) / (f * f));
    inv_std[c] = static_cast<T>(1.0 / (f * std::sqrt(static_cast<double>(variance[c]) + eps)));
    slope[c] = inv_std[c] * gamma[c];
  }
};

using NormFoldKernels = JoinedKernels<
    ForFloats<RunningStd, FoldFactor, FoldWeight, FoldWeightBackward, FoldBiasBackward,
              KeepFromZero, CorrectedNormTerms, CorrectedNormBackward, RecoveredNormTerms>,
    KernelList<FoldBias<float, float>, FoldBias<float, double>, FoldBias<double, float>,
               FoldBias<double, double>>>;

}  // namespace steelyard::kernels
