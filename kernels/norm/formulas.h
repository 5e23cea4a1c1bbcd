// Arithmetic of normalization, host and device.
#pragma once

#include <cmath>

#include "steelyard/kernels/affine.h"

namespace steelyard::kernels {

STEELYARD_HOST_DEVICE inline double inverse_std_of(double variance, double eps) {
  return 1.0 / std::sqrt(variance + eps);
}

// PyTorch's update of a running statistic; momentum is the weight of the new batch.
STEELYARD_HOST_DEVICE inline double moved_statistic(double running, double momentum, double batch) {
  return (1.0 - momentum) * running + momentum * batch;
}

// Mean and sum of squared deviations of `count` values.
struct Moments {
  double count = 0;
  double mean = 0;
  double squares = 0;
};

// The moments of the values of both. Source: Chan, Golub and LeVeque, "Updating Formulae and a
// Pairwise Algorithm for Computing Sample Variances", 1979.
STEELYARD_HOST_DEVICE inline Moments merged(const Moments& a, const Moments& b) {
  if (b.count == 0) return a;
  const double count = a.count + b.count;
  const double delta = b.mean - a.mean;
  return {count, a.mean + delta * (b.count / count),
          a.squares + (b.squares + delta * delta * (a.count * b.count / count))};
}

// From the sums of n deviations and of their squares from a value near the mean.
STEELYARD_HOST_DEVICE inline Moments moments_about(double n, double near, double sum,
                                                   double sum_of_squares) {
  const double offset = sum / n;
  const double squares = sum_of_squares - sum * offset;
  return {n, near + offset, squares < 0 ? 0 : squares};
}

}  // namespace steelyard::kernels
