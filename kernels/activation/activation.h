// Smooth activations on dense arrays. T is float or double.
#pragma once

#include <cmath>
#include <numbers>

#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

enum class SmoothActivation {
  kSigmoid,   // 1 / (1 + exp(-x))
  kGelu,      // x * Phi(x), Phi by erf (Hendrycks and Gimpel, arXiv:1606.08415)
  kSilu,      // x / (1 + exp(-x)) (Elfwing et al., arXiv:1702.03118)
  kHardswish  // x * min(max(x + 3, 0), 6) / 6 (Howard et al., arXiv:1905.02244)
};

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
    case SmoothActivation::kSigmoid:
      return sigmoid(x);
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
    case SmoothActivation::kSigmoid: {
      const T s = sigmoid(x);
      return s * (T(1) - s);
    }
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

template <typename T>
struct Activate {
  static constexpr std::int64_t kGrain = 2048;
  std::int64_t n;
  SmoothActivation activation;
  const T* x;
  T* y;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    y[i] = activation_value(activation, x[i]);
  }
};
// grad_x = grad_y * f'(x); hardswish has f' = 0 at -3 and 1 at 3.
template <typename T>
struct ActivateBackward {
  static constexpr std::int64_t kGrain = 2048;
  std::int64_t n;
  SmoothActivation activation;
  const T *x, *grad_y;
  T* grad_x;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    grad_x[i] = grad_y[i] * activation_slope(activation, x[i]);
  }
};

// y = x where x > 0, else slope * x; NaN stays NaN.
template <typename T>
struct LeakyRelu {
  std::int64_t n;
  const T* x;
  T slope;
  T* y;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const T v = x[i];
    y[i] = v > T(0) ? v : slope * v;
  }
};
template <typename T>
struct LeakyReluBackward {
  std::int64_t n;
  const T *x, *grad_y;
  T slope;
  T* grad_x;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const T g = grad_y[i];
    grad_x[i] = x[i] > T(0) ? g : slope * g;
  }
};

using ActivationKernels = ForFloats<Activate, ActivateBackward, LeakyRelu, LeakyReluBackward>;

}  // namespace steelyard::kernels
