// Layer normalization: every row of a [rows, columns] matrix by its own mean and variance.
// Source: Ba et al., "Layer Normalization", 2016, arXiv:1607.06450.
#pragma once

#include "steelyard/kernels/norm/formulas.h"
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

  template <class Team>
  STEELYARD_HOST_DEVICE void row(std::int64_t r, const Team &team) const {
    const T *from = x + r * columns;
    double sum = 0, squares = 0;
    team.each(columns, [&](std::int64_t c) { sum += static_cast<double>(from[c]); });
    const double centre = sum_of(team, sum) / static_cast<double>(columns);
    team.each(columns, [&](std::int64_t c) {
      const double deviation = static_cast<double>(from[c]) - centre;
      squares += deviation * deviation;
    });
    const double variance = sum_of(team, squares) / static_cast<double>(columns);
    const T m = static_cast<T>(centre), inverse = static_cast<T>(inverse_std_of(variance, eps));
    team.each(columns, [&](std::int64_t c) {
      y[r * columns + c] = (from[c] - m) * inverse * gamma[c] + beta[c];
    });
    if (!team.leads()) return;
    mean[r] = m;
    inv_std[r] = inverse;
  }
};

template <typename T>
struct LayerNormBackward {
  std::int64_t rows, columns;
  const T *x, *grad_y, *mean, *inv_std, *gamma;
  T *grad_x;

  template <class Team>
  STEELYARD_HOST_DEVICE void row(std::int64_t r, const Team &team) const {
    const std::int64_t first = r * columns;
    const T m = mean[r], inverse = inv_std[r];
    const auto gradient = [&](std::int64_t c) {
      return static_cast<double>(grad_y[first + c]) * static_cast<double>(gamma[c]);
    };
    const auto normalized = [&](std::int64_t c) {
      return static_cast<double>((x[first + c] - m) * inverse);
    };
    double sum = 0, projected = 0;  // of the gradient of the normalized row, and along that row
    team.each(columns, [&](std::int64_t c) {
      sum += gradient(c);
      projected += gradient(c) * normalized(c);
    });
    sum = sum_of(team, sum);
    projected = sum_of(team, projected);
    team.each(columns, [&](std::int64_t c) {
      const double mean_part = (sum + normalized(c) * projected) / static_cast<double>(columns);
      const double centred = gradient(c) - mean_part;
      grad_x[first + c] = static_cast<T>(centred * static_cast<double>(inverse));
    });
  }
};

// The gradients of gamma and beta [columns], each of which may be null, in an order that does not
// depend on the number of threads.
template <typename T>
struct LayerNormParameterGradients {
  static constexpr int kTerms = 2;
  std::int64_t rows, channels;
  const T *x, *grad_y, *mean, *inv_std;
  T *grad_gamma, *grad_beta;

  template <int n>
  STEELYARD_HOST_DEVICE T term(std::int64_t i, std::int64_t) const {
    const std::int64_t r = divide(i, channels);
    return n == 1 ? grad_y[i] : grad_y[i] * ((x[i] - mean[r]) * inv_std[r]);
  }
  STEELYARD_HOST_DEVICE void finish(std::int64_t c, const double (&sums)[2]) const {
    if (grad_gamma != nullptr) grad_gamma[c] = static_cast<T>(sums[0]);
    if (grad_beta != nullptr) grad_beta[c] = static_cast<T>(sums[1]);
  }
};

using LayerNormKernels = ForFloats<LayerNorm, LayerNormBackward, LayerNormParameterGradients>;

}  // namespace steelyard::kernels
