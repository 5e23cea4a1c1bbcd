// Functions of one number, and the gradients of their formulas. T is float or double.
#pragma once

#include <cmath>
#include <numbers>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

enum class UnaryFunction {
  kSqrt,
  kExp,
  kLog,
  kAbs,
  kErf,
  kTanh,
  kPower,  // x to the power `exponent`
};

template <typename T>
STEELYARD_HOST_DEVICE inline T unary_value(UnaryFunction function, T x, T exponent) {
  switch (function) {
    case UnaryFunction::kSqrt:
      return std::sqrt(x);
    case UnaryFunction::kExp:
      return std::exp(x);
    case UnaryFunction::kLog:
      return std::log(x);
    case UnaryFunction::kAbs:
      return std::abs(x);
    case UnaryFunction::kErf:
      return std::erf(x);
    case UnaryFunction::kTanh:
      return std::tanh(x);
    case UnaryFunction::kPower:
      break;
  }
  return std::pow(x, exponent);
}

// |x| has the slope 0 at 0, and so has sqrt(x): the gradient of the root of a sum of squares is 0
// where all of them are 0, not 0 times infinity.
template <typename T>
STEELYARD_HOST_DEVICE inline T unary_slope(UnaryFunction function, T x, T exponent) {
  switch (function) {
    case UnaryFunction::kSqrt:
      return x == T(0) ? T(0) : T(0.5) / std::sqrt(x);
    case UnaryFunction::kExp:
      return std::exp(x);
    case UnaryFunction::kLog:
      return T(1) / x;
    case UnaryFunction::kAbs:
      return x > T(0) ? T(1) : x < T(0) ? T(-1) : T(0);
    case UnaryFunction::kErf:
      return T(2) * std::numbers::inv_sqrtpi_v<T> * std::exp(-x * x);
    case UnaryFunction::kTanh: {
      const T y = std::tanh(x);
      return T(1) - y * y;
    }
    case UnaryFunction::kPower:
      break;
  }
  return exponent == T(0) ? T(0) : exponent * std::pow(x, exponent - T(1));
}

template <typename T>
struct Unary {
  static constexpr std::int64_t kGrain = 1024;
  std::int64_t n;
  UnaryFunction function;
  T exponent;  // of kPower
  const T* x;
  T* y;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    y[i] = unary_value(function, x[i], exponent);
  }
};
// grad_x = grad_y * f'(x).
template <typename T>
struct UnaryBackward {
  static constexpr std::int64_t kGrain = 1024;
  std::int64_t n;
  UnaryFunction function;
  T exponent;
  const T *x, *grad_y;
  T* grad_x;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    grad_x[i] = grad_y[i] * unary_slope(function, x[i], exponent);
  }
};

using UnaryKernels = ForFloats<Unary, UnaryBackward>;

}  // namespace steelyard::kernels
