// Functions of one number and their slopes: those of the formulas, but 0 for |x| and sqrt(x) at 0.
// T is float or double.
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
  kSin,
  kCos,
  kSoftplus,  // log(1 + exp(x))
  kElu,       // x, below 0 `parameter` * (exp(x) - 1)
  kSign,
  kFloor,
  kCeil,
  kRound,  // halves to the even number
  kPower,  // x to the power `parameter`
};

template <typename T>
STEELYARD_HOST_DEVICE inline T unary_value(UnaryFunction function, T x, T parameter) {
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
    case UnaryFunction::kSin:
      return std::sin(x);
    case UnaryFunction::kCos:
      return std::cos(x);
    case UnaryFunction::kSoftplus:
      return (x > T(0) ? x : T(0)) + std::log1p(std::exp(-std::abs(x)));
    case UnaryFunction::kElu:
      return x > T(0) ? x : parameter * std::expm1(x);
    case UnaryFunction::kSign:
      return x > T(0) ? T(1) : x < T(0) ? T(-1) : x;
    case UnaryFunction::kFloor:
      return std::floor(x);
    case UnaryFunction::kCeil:
      return std::ceil(x);
    case UnaryFunction::kRound:
      return std::nearbyint(x);
    case UnaryFunction::kPower:
      break;
  }
  return std::pow(x, parameter);
}

// Steps have the slope 0. |x| has the slope 0 at 0, and so has sqrt(x): the gradient of the root of
// a sum of squares is 0 where all of them are 0, not 0 times infinity.
template <typename T>
STEELYARD_HOST_DEVICE inline T unary_slope(UnaryFunction function, T x, T parameter) {
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
    case UnaryFunction::kSin:
      return std::cos(x);
    case UnaryFunction::kCos:
      return -std::sin(x);
    case UnaryFunction::kSoftplus:
      return T(1) / (T(1) + std::exp(-x));
    case UnaryFunction::kElu:
      return x > T(0) ? T(1) : parameter * std::exp(x);
    case UnaryFunction::kSign:
    case UnaryFunction::kFloor:
    case UnaryFunction::kCeil:
    case UnaryFunction::kRound:
      return T(0);
    case UnaryFunction::kPower:
      break;
  }
  return parameter == T(0) ? T(0) : parameter * std::pow(x, parameter - T(1));
}

template <typename T>
struct Unary {
  static constexpr std::int64_t kGrain = 1024;
  static constexpr UnaryFunction kLastFunction = UnaryFunction::kPower;
  std::int64_t n;
  UnaryFunction function;
  T parameter;  // of kElu, kPower
  const T* x;
  T* y;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const { at(function, i); }
  STEELYARD_HOST_DEVICE void at(auto of, std::int64_t i) const {
    y[i] = unary_value(of, x[i], parameter);
  }
};
// grad_x = grad_y * f'(x).
template <typename T>
struct UnaryBackward {
  static constexpr std::int64_t kGrain = 1024;
  static constexpr UnaryFunction kLastFunction = UnaryFunction::kPower;
  std::int64_t n;
  UnaryFunction function;
  T parameter;
  const T *x, *grad_y;
  T* grad_x;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const { at(function, i); }
  STEELYARD_HOST_DEVICE void at(auto of, std::int64_t i) const {
    grad_x[i] = grad_y[i] * unary_slope(of, x[i], parameter);
  }
};

using UnaryKernels = ForFloats<Unary, UnaryBackward>;

}  // namespace steelyard::kernels
