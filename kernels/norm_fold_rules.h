// The formulas of kernels/norm_fold.h for one channel c, host and device.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/affine.h"

namespace steelyard::kernels::norm_fold {

struct RunningStd {
  template <typename R>
  STEELYARD_HOST_DEVICE static void at(std::int64_t c, const R* variance, double eps,
                                       double* std_dev) {
    std_dev[c] = std::sqrt(static_cast<double>(variance[c]) + eps);
  }
};

template <typename T>
STEELYARD_HOST_DEVICE inline double factor_of(T gamma, double std_dev) {
  return static_cast<double>(gamma) / std_dev;
}

struct FoldBias {
  template <typename T, typename R>
  STEELYARD_HOST_DEVICE static void at(std::int64_t c, const T* bias, const T* gamma, const T* beta,
                                       const R* mean, const double* std_dev, double* centred,
                                       T* folded) {
    const double b = bias == nullptr ? 0.0 : static_cast<double>(bias[c]);
    centred[c] = b - static_cast<double>(mean[c]);
    folded[c] =
        static_cast<T>(static_cast<double>(beta[c]) + centred[c] * factor_of(gamma[c], std_dev[c]));
  }
};

struct FoldBiasBackward {
  template <typename T>
  STEELYARD_HOST_DEVICE static void at(std::int64_t c, const T* grad_folded, const T* gamma,
                                       const double* std_dev, const double* centred, T* grad_gamma,
                                       T* grad_bias) {
    const double g = static_cast<double>(grad_folded[c]) / std_dev[c];
    grad_gamma[c] = static_cast<T>(g * centred[c]);
    grad_bias[c] = static_cast<T>(g * static_cast<double>(gamma[c]));
  }
};

struct KeepFromZero {
  template <typename T>
  STEELYARD_HOST_DEVICE static void at(std::int64_t i, T smallest, const T* x, T* y) {
    y[i] = std::fabs(x[i]) < smallest ? std::copysign(smallest, x[i]) : x[i];
  }
};

struct FoldFactor {
  template <typename T>
  STEELYARD_HOST_DEVICE static void at(std::int64_t c, const T* gamma, const double* std_dev,
                                       double* factor) {
    factor[c] = factor_of(gamma[c], std_dev[c]);
  }
};

struct CorrectedTerms {
  template <typename T>
  STEELYARD_HOST_DEVICE static void at(std::int64_t c, const T* gamma, const T* mean,
                                       const T* variance, double eps, const double* std_dev,
                                       const T* offset, T* inv_std, T* ratio, T* hidden_mean,
                                       T* shifted_mean) {
    const double m = static_cast<double>(mean[c]);
    inv_std[c] = static_cast<T>(1.0 / std::sqrt(static_cast<double>(variance[c]) + eps));
    ratio[c] = static_cast<T>(std_dev[c] * static_cast<double>(inv_std[c]));
    hidden_mean[c] = static_cast<T>(static_cast<double>(gamma[c]) * m / std_dev[c]);
    shifted_mean[c] =
        static_cast<T>(m + (offset == nullptr ? 0.0 : static_cast<double>(offset[c])));
  }
};

struct CorrectedBackward {
  template <typename T>
  STEELYARD_HOST_DEVICE static void at(std::int64_t c, std::int64_t rows, const T* gamma,
                                       const T* mean, const T* inv_std, const T* grad_ratio,
                                       const T* grad_beta, T* grad_gamma, T* slope, T* shift) {
    const double inverse = static_cast<double>(inv_std[c]);
    const double of_beta = static_cast<double>(grad_beta[c]);
    const double n = static_cast<double>(rows);
    grad_gamma[c] = static_cast<T>(-inverse * static_cast<double>(mean[c]) * of_beta);
    slope[c] = static_cast<T>(-inverse * inverse * static_cast<double>(grad_ratio[c]) / n);
    shift[c] = static_cast<T>(-static_cast<double>(gamma[c]) * inverse * of_beta / n);
  }
};

struct RecoveredTerms {
  template <typename T>
  STEELYARD_HOST_DEVICE static void at(std::int64_t c, const double* factor, const T* product_mean,
                                       const T* product_variance, double eps, const T* offset,
                                       T* mean, T* variance, T* inv_std) {
    const double f = factor[c];
    mean[c] = static_cast<T>(static_cast<double>(product_mean[c]) / f +
                             (offset == nullptr ? 0.0 : static_cast<double>(offset[c])));
    variance[c] = static_cast<T>(static_cast<double>(product_variance[c]) / (f * f));
    inv_std[c] = static_cast<T>(1.0 / (f * std::sqrt(static_cast<double>(variance[c]) + eps)));
  }
};

}  // namespace steelyard::kernels::norm_fold
