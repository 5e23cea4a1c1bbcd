// Functions of one number that activate, on dense arrays. T is float or double.
#pragma once

#include <cmath>
#include <numbers>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/exponential.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

enum class ActivationFunction {
  kSigmoid,      // 1 / (1 + exp(-x))
  kGelu,         // x * Phi(x), Phi by erf (Hendrycks and Gimpel, arXiv:1606.08415)
  kTanhGelu,     // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), the same paper
  kSilu,         // x / (1 + exp(-x)) (Elfwing et al., arXiv:1702.03118)
  kHardswish,    // x * min(max(x + 3, 0), 6) / 6 (Howard et al., arXiv:1905.02244)
  kHardSigmoid,  // min(max(slope * x + offset, 0), 1)
  kAffine,       // slope * x + offset
  kLeakyRelu,    // x above 0, else slope * x
  kTanh
};

// The line of a hard sigmoid, an affine map or, without offset, a leaky ReLU.
struct Ramp {
  double slope = 0;
  double offset = 0;
  bool operator==(const Ramp&) const = default;
};

template <typename T>
STEELYARD_HOST_DEVICE inline T hard_sigmoid(T x, const Ramp& ramp) {
  const T line = T(ramp.slope) * x + T(ramp.offset);
  if (line <= T(0)) return T(0);
  return line >= T(1) ? T(1) : line;
}
template <typename T>
STEELYARD_HOST_DEVICE inline T hard_sigmoid_slope(T x, const Ramp& ramp) {
  const T line = T(ramp.slope) * x + T(ramp.offset);
  return line <= T(0) || line >= T(1) ? T(0) : T(ramp.slope);
}

template <typename T>
STEELYARD_HOST_DEVICE inline T normal_cdf(T x) {
  return T(0.5) * (T(1) + std::erf(x / std::numbers::sqrt2_v<T>));
}

template <typename T>
STEELYARD_HOST_DEVICE inline T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// The argument of the tanh of a GELU, and its slope.
template <typename T>
STEELYARD_HOST_DEVICE inline T gelu_argument(T x) {
  return T(0.7978845608028654) * (x + T(0.044715) * x * x * x);
}
template <typename T>
STEELYARD_HOST_DEVICE inline T gelu_argument_slope(T x) {
  return T(0.7978845608028654) * (T(1) + T(3 * 0.044715) * x * x);
}

template <typename T>
STEELYARD_HOST_DEVICE inline T activation_value(ActivationFunction activation, T x,
                                                const Ramp& ramp = {}) {
  switch (activation) {
    case ActivationFunction::kSigmoid:
      return sigmoid(x);
    case ActivationFunction::kGelu:
      return x * normal_cdf(x);
    case ActivationFunction::kTanhGelu:
      return T(0.5) * x * (T(1) + std::tanh(gelu_argument(x)));
    case ActivationFunction::kSilu:
      return x * sigmoid(x);
    case ActivationFunction::kHardSigmoid:
      return hard_sigmoid(x, ramp);
    case ActivationFunction::kAffine:
      return T(ramp.slope) * x + T(ramp.offset);
    case ActivationFunction::kLeakyRelu:
      return x > T(0) ? x : T(ramp.slope) * x;
    case ActivationFunction::kTanh:
      return std::tanh(x);
    case ActivationFunction::kHardswish:
      break;
  }
  if (x <= T(-3)) return T(0);
  return x >= T(3) ? x : x * (x + T(3)) / T(6);
}

template <typename T>
STEELYARD_HOST_DEVICE inline T activation_slope(ActivationFunction activation, T x,
                                                const Ramp& ramp = {}) {
  switch (activation) {
    case ActivationFunction::kSigmoid: {
      const T s = sigmoid(x);
      return s * (T(1) - s);
    }
    case ActivationFunction::kGelu: {
      const T density =
          std::exp(T(-0.5) * x * x) * (std::numbers::inv_sqrtpi_v<T> / std::numbers::sqrt2_v<T>);
      return normal_cdf(x) + x * density;
    }
    case ActivationFunction::kTanhGelu: {
      const T y = std::tanh(gelu_argument(x));
      return T(0.5) * (T(1) + y + x * (T(1) - y * y) * gelu_argument_slope(x));
    }
    case ActivationFunction::kSilu: {
      const T s = sigmoid(x);
      return s * (T(1) + x * (T(1) - s));
    }
    case ActivationFunction::kHardSigmoid:
      return hard_sigmoid_slope(x, ramp);
    case ActivationFunction::kAffine:
      return T(ramp.slope);
    case ActivationFunction::kLeakyRelu:
      return x > T(0) ? T(1) : T(ramp.slope);
    case ActivationFunction::kTanh: {
      const T y = std::tanh(x);
      return T(1) - y * y;
    }
    case ActivationFunction::kHardswish:
      break;
  }
  if (x <= T(-3)) return T(0);
  return x >= T(3) ? T(1) : x / T(3) + T(0.5);
}

template <typename T>
struct Activate {
  static constexpr std::int64_t kGrain = 2048;
  static constexpr ActivationFunction kLastFunction = ActivationFunction::kTanh;
  std::int64_t n;
  ActivationFunction function;
  const T* x;
  T* y;
  Ramp ramp = {};  // of those that have a line

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const { at(function, i); }
  STEELYARD_HOST_DEVICE void at(auto of, std::int64_t i) const {
    y[i] = activation_value(of, x[i], ramp);
  }
};
// grad_x = grad_y * f'(x); hardswish has f' = 0 at -3 and 1 at 3, the hard sigmoid 0 at both ends.
template <typename T>
struct ActivateBackward {
  static constexpr std::int64_t kGrain = 2048;
  static constexpr ActivationFunction kLastFunction = ActivationFunction::kTanh;
  std::int64_t n;
  ActivationFunction function;
  const T *x, *grad_y;
  T* grad_x;
  Ramp ramp = {};

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const { at(function, i); }
  STEELYARD_HOST_DEVICE void at(auto of, std::int64_t i) const {
    grad_x[i] = grad_y[i] * activation_slope(of, x[i], ramp);
  }
};

// y = x within [lo, hi]; NaN stays NaN.
template <typename T>
struct Clamp {
  std::int64_t n;
  const T* x;
  T lo, hi;
  T* y;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const T v = x[i];
    y[i] = v < lo ? lo : v > hi ? hi : v;
  }
};
// grad_x = grad_y where x lies between lo and hi or is NaN, else 0.
template <typename T>
struct ClampBackward {
  std::int64_t n;
  const T *x, *grad_y;
  T lo, hi;
  T* grad_x;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const bool flat = (x[i] <= lo) | (x[i] >= hi);
    grad_x[i] = pass_inside(!flat, grad_y[i]);
  }
};

// All of them with the same bits on host and device: computed in double from exp_of_negative(),
// rounded once.
STEELYARD_HOST_DEVICE inline double exact_sigmoid(double x) {
  const double e = exp_of_negative(x < 0 ? x : -x);
  return x < 0 ? e / (1 + e) : 1 / (1 + e);
}
STEELYARD_HOST_DEVICE inline double exact_tanh(double x) {
  const double e = exp_of_negative(x < 0 ? 2 * x : -2 * x);
  const double y = (1 - e) / (1 + e);
  return x < 0 ? -y : y;
}
STEELYARD_HOST_DEVICE inline double exact_normal_density(double x) {
  return exp_of_negative(-0.5 * x * x) *
         (std::numbers::inv_sqrtpi_v<double> / std::numbers::sqrt2_v<double>);
}
// Phi(x): a series up to |x| = 3, beyond it the continued fraction of the tail (Abramowitz and
// Stegun, Handbook of Mathematical Functions, 26.2.11 and 26.2.14).
STEELYARD_HOST_DEVICE inline double exact_normal_cdf(double x) {
  const double size = std::abs(x);
  if (size <= 3) {
    double term = x;
    double sum = x;
    STEELYARD_ROLLED
    for (int n = 3; n < 101; n += 2) {
      term *= x * x / n;
      sum += term;
    }
    return 0.5 + exact_normal_density(x) * sum;
  }
  double divisor = size;
  STEELYARD_ROLLED
  for (int n = 60; n > 0; --n) divisor = size + n / divisor;
  const double tail = exact_normal_density(x) / divisor;
  return x < 0 ? tail : 1 - tail;
}
STEELYARD_HOST_DEVICE inline float exact_activation(ActivationFunction activation, float x,
                                                    const Ramp& ramp = {}) {
  const auto v = static_cast<double>(x);
  if (activation == ActivationFunction::kSigmoid) return static_cast<float>(exact_sigmoid(v));
  if (activation == ActivationFunction::kTanh) return static_cast<float>(exact_tanh(v));
  if (activation == ActivationFunction::kSilu) return static_cast<float>(v * exact_sigmoid(v));
  if (activation == ActivationFunction::kGelu) return static_cast<float>(v * exact_normal_cdf(v));
  if (activation == ActivationFunction::kTanhGelu) {  // (1 + tanh(u)) / 2 = sigmoid(2 u)
    return static_cast<float>(v * exact_sigmoid(2 * gelu_argument(v)));
  }
  return static_cast<float>(activation_value(activation, v, ramp));  // without a function of libm
}
STEELYARD_HOST_DEVICE inline float exact_slope(ActivationFunction activation, float x,
                                               const Ramp& ramp = {}) {
  const auto v = static_cast<double>(x);
  const double s = exact_sigmoid(v);
  if (activation == ActivationFunction::kSigmoid) return static_cast<float>(s * (1 - s));
  if (activation == ActivationFunction::kTanh) {
    return static_cast<float>((1 - exact_tanh(v)) * (1 + exact_tanh(v)));
  }
  if (activation == ActivationFunction::kSilu) return static_cast<float>(s * (1 + v * (1 - s)));
  if (activation == ActivationFunction::kGelu) {
    return static_cast<float>(exact_normal_cdf(v) + v * exact_normal_density(v));
  }
  if (activation == ActivationFunction::kTanhGelu) {
    const double gate = exact_sigmoid(2 * gelu_argument(v));
    return static_cast<float>(gate * (1 + 2 * v * (1 - gate) * gelu_argument_slope(v)));
  }
  return activation_slope(activation, x, ramp);
}

// What one of these makes of each of the 256 bytes that may be a code of the input: the
// value, and where they are not null the output's code (its byte) and the slope, 0 where the code
// is clipped. n = 256.
struct ActivationTable {
  static constexpr std::int64_t kGrain = 256;
  std::int64_t n;
  ActivationFunction activation;
  bool is_signed;  // the input's codes
  const float* in_scale;
  const std::int32_t* in_zero_point;
  float* values;
  const float* scale;
  const std::int32_t* zero_point;
  CodeRange range;
  std::uint8_t* codes;
  float* slopes;
  Ramp ramp = {};

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const float code = static_cast<float>(is_signed && i >= 128 ? i - 256 : i);
    const float x = dequantize_code(code, static_cast<float>(*in_zero_point), *in_scale);
    const float y = exact_activation(activation, x, ramp);
    values[i] = y;
    if (codes == nullptr) return;
    const CodeGrid<float> grid = make_code_grid(range, *scale, *zero_point);
    codes[i] = static_cast<std::uint8_t>(quantize_value(y, grid));
    slopes[i] = is_inside(y, grid) ? exact_slope(activation, x, ramp) : 0.0F;
  }
};

// y = table[x], tables of 256.
struct MapBytes {
  std::int64_t n;
  const std::uint8_t *x, *table;
  std::uint8_t* y;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const { y[i] = table[x[i]]; }
  void after(std::int64_t) const {}
};
// y = table[x] * factor; a null factor is 1.
struct MapToFloats {
  std::int64_t n;
  const std::uint8_t* x;
  const float *table, *factor;
  float* y;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    y[i] = table[x[i]];
    after(i);
  }
  STEELYARD_HOST_DEVICE void after(std::int64_t i) const {
    if (factor != nullptr) y[i] *= factor[i];
  }
};

using ActivationKernels = JoinedKernels<ForFloats<Activate, ActivateBackward, Clamp, ClampBackward>,
                                        KernelList<ActivationTable, MapBytes, MapToFloats>>;

}  // namespace steelyard::kernels
