// What the kernels of softmax and of losses compute of a row, host and device.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

inline constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

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

// One class of KL(p || q), from the logarithms; 0 of a class without probability in p.
struct Divergence {
  STEELYARD_HOST_DEVICE Divergence(double log_p, double log_q)
      : p(std::exp(log_p)), q(std::exp(log_q)), term(p == 0 ? 0 : p * (log_p - log_q)) {}
  // The derivative by the logit of q.
  STEELYARD_HOST_DEVICE double slope() const { return q - p; }

  double p, q, term;
};

// The largest value of a row that a team shares. NaNs are skipped here; the sums that follow
// contain them.
template <class Team, typename T>
STEELYARD_HOST_DEVICE T largest_of_row(const Team& team, std::int64_t n, const T* row) {
  return team.template largest<T>(n, [row](std::int64_t c) { return row[c]; });
}

// log(sum of exp(row / temperature)).
template <class Team, typename T>
STEELYARD_HOST_DEVICE double log_sum_exp(const Team& team, std::int64_t n, const T* row,
                                         double temperature) {
  const double largest = static_cast<double>(largest_of_row(team, n, row)) / temperature;
  double sum = 0;
  team.each(n, [&](std::int64_t c) {
    sum += std::exp(static_cast<double>(row[c]) / temperature - largest);
  });
  return largest + std::log(sum_of(team, sum));
}

// The order of ArgmaxRows: a NaN is largest.
template <typename T>
STEELYARD_HOST_DEVICE inline bool is_larger(T a, T b) {
  return a > b || (std::isnan(a) && !std::isnan(b));
}

// The first place of a row's largest value in this order.
template <class Team, typename T>
STEELYARD_HOST_DEVICE std::int64_t place_of_largest(const Team& team, std::int64_t n,
                                                    const T* row) {
  struct Place {
    T value;
    std::int64_t at;  // n: none yet
  };
  const auto better = [n](const Place& a, const Place& b) {
    if (a.at == n || b.at == n) return a.at == n ? b : a;
    if (is_larger(a.value, b.value)) return a;
    return is_larger(b.value, a.value) || b.at < a.at ? b : a;
  };
  Place best{T(0), n};
  team.each(n, [&](std::int64_t c) { best = better(best, {row[c], c}); });
  return team.joined(best, better).at;
}

}  // namespace steelyard::kernels
