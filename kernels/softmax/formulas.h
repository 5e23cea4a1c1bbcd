// What the softmax kernels compute of a row's sums, for CPU and GPU.
#pragma once

#include <cmath>
#include <cstdint>

#include "steelyard/kernels/affine.h"

namespace steelyard::kernels {

// The target distribution of a label: (1 - smoothing) * onehot + smoothing / classes.
struct SmoothedTarget {
  STEELYARD_HOST_DEVICE SmoothedTarget(std::int64_t class_count, std::int64_t true_label,
                                       double eps)
      : classes(static_cast<double>(class_count)), label(true_label), smoothing(eps) {}

  STEELYARD_HOST_DEVICE double at(std::int64_t c) const {
    return smoothing / classes + (c == label ? 1 - smoothing : 0.0);
  }
  // The cross-entropy of a row, from sum = sum of exp(x - largest), at_label = x[label] - largest
  // and shifted = sum of x - largest.
  STEELYARD_HOST_DEVICE double loss(double sum, double at_label, double shifted) const {
    const double log_sum = std::log(sum);
    const double plain = (1 - smoothing) * (log_sum - at_label);
    return smoothing > 0 ? plain + smoothing * (log_sum - shifted / classes) : plain;
  }

  double classes;
  std::int64_t label;
  double smoothing;
};

// One class of KL(p || q), from the logarithms.
struct Divergence {
  STEELYARD_HOST_DEVICE Divergence(double log_p, double log_q)
      : p(std::exp(log_p)), q(std::exp(log_q)), term(p * (log_p - log_q)) {}
  // The derivative by the logit behind q.
  STEELYARD_HOST_DEVICE double slope() const { return q - p; }

  double p, q, term;
};

// The order of argmax_rows: a NaN is largest.
template <typename T>
STEELYARD_HOST_DEVICE inline bool is_larger(T a, T b) {
  return a > b || (std::isnan(a) && !std::isnan(b));
}

}  // namespace steelyard::kernels
