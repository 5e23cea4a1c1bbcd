// Normalization of every row of a [rows, columns] matrix by its root mean square.
// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, arXiv:1910.07467.
#pragma once

#include "steelyard/kernels/norm/formulas.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// y = x * inv_rms * gamma with inv_rms = 1 / sqrt(mean of x^2 + eps), computed in double and
// rounded; inv_rms [rows] is written for backward.
template <typename T>
struct RmsNorm {
  std::int64_t rows, columns;
  const T *x, *gamma;
  double eps;
  T *y, *inv_rms;

  template <class Team>
  STEELYARD_HOST_DEVICE void row(std::int64_t r, const Team &team) const {
    const T *from = x + r * columns;
    double squares = 0;
    team.each(columns, [&](std::int64_t c) {
      squares += static_cast<double>(from[c]) * static_cast<double>(from[c]);
    });
    const double mean = sum_of(team, squares) / static_cast<double>(columns);
    const T inverse = static_cast<T>(inverse_std_of(mean, eps));
    team.each(columns, [&](std::int64_t c) { y[r * columns + c] = from[c] * inverse * gamma[c]; });
    if (team.leads()) inv_rms[r] = inverse;
  }
};

// grad_x = (g - n * mean(g * n)) * inv_rms with n = x * inv_rms, g = grad_y * gamma.
template <typename T>
struct RmsNormBackward {
  std::int64_t rows, columns;
  const T *x, *grad_y, *inv_rms, *gamma;
  T *grad_x;

  template <class Team>
  STEELYARD_HOST_DEVICE void row(std::int64_t r, const Team &team) const {
    const std::int64_t first = r * columns;
    const T inverse = inv_rms[r];
    const auto gradient = [&](std::int64_t c) {
      return static_cast<double>(grad_y[first + c]) * static_cast<double>(gamma[c]);
    };
    const auto normalized = [&](std::int64_t c) {
      return static_cast<double>(x[first + c] * inverse);
    };
    double projected = 0;
    team.each(columns, [&](std::int64_t c) { projected += gradient(c) * normalized(c); });
    const double mean = sum_of(team, projected) / static_cast<double>(columns);
    team.each(columns, [&](std::int64_t c) {
      const double rest = gradient(c) - normalized(c) * mean;
      grad_x[first + c] = static_cast<T>(rest * static_cast<double>(inverse));
    });
  }
};

// The gradient of gamma [columns], in an order that does not depend on the number of threads.
template <typename T>
struct RmsNormGammaGradient {
  static constexpr int kTerms = 1;
  std::int64_t rows, channels;
  const T *x, *grad_y, *inv_rms;
  T *grad_gamma;

  template <int n>
  STEELYARD_HOST_DEVICE T term(std::int64_t i, std::int64_t) const {
    return grad_y[i] * (x[i] * inv_rms[divide(i, channels)]);
  }
  STEELYARD_HOST_DEVICE void finish(std::int64_t c, const double (&sums)[1]) const {
    grad_gamma[c] = static_cast<T>(sums[0]);
  }
};

using RmsNormKernels = ForFloats<RmsNorm, RmsNormBackward, RmsNormGammaGradient>;

}  // namespace steelyard::kernels
