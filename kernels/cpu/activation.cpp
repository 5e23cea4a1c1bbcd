#include "kernels/activation.h"

#include <cmath>
#include <numbers>

#include "kernels/cpu/parallel.h"

namespace steelyard::kernels {
namespace {

constexpr std::int64_t kGrain = 2048;  // elements per thread that pay for waking it

template <typename T>
T normal_cdf(T x) {
  return T(0.5) * (T(1) + std::erf(x / std::numbers::sqrt2_v<T>));
}

template <typename T>
T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

template <typename T>
T value(SmoothActivation activation, T x) {
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
T slope(SmoothActivation activation, T x) {
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

}  // namespace

template <typename T>
void smooth_activation_forward(SmoothActivation activation, std::int64_t n, const T* x, T* y) {
  parallel_for(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] = value(activation, x[i]);
  });
}

template <typename T>
void smooth_activation_backward(SmoothActivation activation, std::int64_t n, const T* x,
                                const T* grad_y, T* grad_x) {
  parallel_for(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) grad_x[i] = grad_y[i] * slope(activation, x[i]);
  });
}

template void smooth_activation_forward(SmoothActivation, std::int64_t, const float*, float*);
template void smooth_activation_forward(SmoothActivation, std::int64_t, const double*, double*);
template void smooth_activation_backward(SmoothActivation, std::int64_t, const float*, const float*,
                                         float*);
template void smooth_activation_backward(SmoothActivation, std::int64_t, const double*,
                                         const double*, double*);

}  // namespace steelyard::kernels
