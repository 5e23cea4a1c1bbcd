// Smooth activations of one value, host and device.
#pragma once

#include <cmath>
#include <numbers>

#include "kernels/activation.h"
#include "kernels/affine.h"

namespace steelyard::kernels {

template <typename T>
STEELYARD_HOST_DEVICE inline T normal_cdf(T x) {
  return T(0.5) * (T(1) + std::erf(x / std::numbers::sqrt2_v<T>));
}

template <typename T>
STEELYARD_HOST_DEVICE inline T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

template <typename T>
STEELYARD_HOST_DEVICE inline T activation_value(SmoothActivation activation, T x) {
  switch (activation) {
    case SmoothActivation::kGelu:
      return x * normal_cdf(x);
    case SmoothActivation::kSilu:
      return x * sigmoid(x);
    case SmoothActivation::kHardswish:
      break;
  }
  if (x <= T(-3)) return T(0);
  return x >= T(3) ? x : x * (x + T(3)) / T(6);
}

template <typename T>
STEELYARD_HOST_DEVICE inline T activation_slope(SmoothActivation activation, T x) {
  switch (activation) {
    case SmoothActivation::kGelu: {
      const T density =
          std::exp(T(-0.5) * x * x) * (std::numbers::inv_sqrtpi_v<T> / std::numbers::sqrt2_v<T>);
      return normal_cdf(x) + x * density;
    }
    case SmoothActivation::kSilu: {
      const T s = sigmoid(x);
      return s * (T(1) + x * (T(1) - s));
    }
    case SmoothActivation::kHardswish:
      break;
  }
  if (x <= T(-3)) return T(0);
  return x >= T(3) ? T(1) : x / T(3) + T(0.5);
}

}  // namespace steelyard::kernels
