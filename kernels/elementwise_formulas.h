// What the elementwise kernels compute of one element, for CPU and GPU. T is float or double.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/affine.h"

namespace steelyard::kernels {

template <typename T>
STEELYARD_HOST_DEVICE inline T mixed(double weight, T a, T b) {
  return static_cast<T>((1 - weight) * static_cast<double>(a) + weight * static_cast<double>(b));
}

template <typename T>
STEELYARD_HOST_DEVICE inline double difference(T a, T b) {
  return static_cast<double>(a) - static_cast<double>(b);
}

// (a - b)^2, and its derivative by a over n.
template <typename T>
STEELYARD_HOST_DEVICE inline double squared_error(T a, T b) {
  const double d = difference(a, b);
  return d * d;
}
template <typename T>
STEELYARD_HOST_DEVICE inline T squared_error_slope(T a, T b, std::int64_t n) {
  return static_cast<T>(difference(a, b) * (2.0 / static_cast<double>(n)));
}

// Huber's error of a - b, and its derivative by a over n.
template <typename T>
STEELYARD_HOST_DEVICE inline double huber_error(T a, T b, double delta) {
  const double d = std::abs(difference(a, b));
  return d <= delta ? 0.5 * d * d : delta * (d - 0.5 * delta);
}
template <typename T>
STEELYARD_HOST_DEVICE inline T huber_error_slope(T a, T b, double delta, std::int64_t n) {
  const double d = difference(a, b);
  const double clamped = d < -delta ? -delta : d > delta ? delta : d;
  return static_cast<T>(clamped / static_cast<double>(n));
}

template <typename T>
STEELYARD_HOST_DEVICE inline bool is_finite(T x) {
  return x - x == T(0);
}

}  // namespace steelyard::kernels
