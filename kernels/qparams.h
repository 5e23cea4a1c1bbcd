// Scale and zero point, and how a range of values gives them, host and device: the one place that
// does it.
//
// All in double, rounded at the end to the type of the scale; so is the moving average, since the
// difference of two large floats may be no float.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/value_type.h"

namespace steelyard::kernels {

// A code q stands for (q - zero_point) * scale. T is float or double.
template <typename T>
struct QParams {
  T scale = 1;
  std::int32_t zero_point = 0;
  bool operator==(const QParams&) const = default;
};

// What holds the scales of values of a format: the smallest one, and the largest finite value,
// which no code may stand for more than. Half's smallest is its smallest denormal, so that no code
// but z becomes 0.
template <typename T>
struct ScaleLimits {
  static constexpr double kSmallest = FLT_MIN;
  static constexpr double kLargest = FLT_MAX;
};
template <>
struct ScaleLimits<double> {
  static constexpr double kSmallest = DBL_MIN;
  static constexpr double kLargest = DBL_MAX;
};
template <>
struct ScaleLimits<Half> {
  static constexpr double kSmallest = 0x1p-24;
  static constexpr double kLargest = 65504;
};
template <>
struct ScaleLimits<BFloat16> {
  static constexpr double kSmallest = FLT_MIN;
  static constexpr double kLargest = 0x1.FEp127;
};

// The largest |q - z| of a code range.
[[gnu::always_inline]] STEELYARD_HOST_DEVICE inline double largest_operand(CodeRange range,
                                                                           double zero_point) {
  const double below = zero_point - range.qmin;
  const double above = range.qmax - zero_point;
  return below > above ? below : above;
}

// scale rounded to the arithmetic's type, held within the format's limits: scale * largest is
// finite.
template <typename V>
[[gnu::always_inline]] STEELYARD_HOST_DEVICE inline ComputeType<V> bounded_scale(double scale,
                                                                                 double largest) {
  using T = ComputeType<V>;
  const double ceiling = ScaleLimits<V>::kLargest / largest;
  const double raised = scale < ScaleLimits<V>::kSmallest ? ScaleLimits<V>::kSmallest : scale;
  const T rounded = static_cast<T>(raised > ceiling ? ceiling : raised);
  // Rounding up must not carry the largest code past the largest value: the number below does not.
  const bool beyond = static_cast<double>(rounded) * largest > ScaleLimits<V>::kLargest;
  return bits_as<T>(bits_as<BitsOf<T>>(rounded) - (beyond ? 1U : 0U));
}

// True where a range says nothing about a scale: [0, 0], or nothing seen (lo > hi).
STEELYARD_HOST_DEVICE inline bool is_zero_range(double lo, double hi) {
  const bool empty = !(lo <= hi);
  return empty | ((lo == 0) & (hi == 0));
}

// The zero point for which the lowest code stands for `lowest`: clamp(rint(qmin - lowest / scale)).
[[gnu::always_inline]] STEELYARD_HOST_DEVICE inline double zero_point_of_lowest(double lowest,
                                                                                double scale,
                                                                                CodeRange range) {
  return clamp_keeping_nan<double>(round_half_even(range.qmin - lowest / scale), range.qmin,
                                   range.qmax);
}

// Symmetric: scale = max(|lo|, |hi|) / qmax, zero point 0. Affine: the range is extended to hold 0,
// scale = (hi - lo) / (qmax - qmin), zero point = clamp(rint(qmin - lo / scale)). A zero range
// gives scale 1 and the code nearest to 0. lo and hi are finite unless lo > hi; V is the format of
// the values.
template <typename V>
[[gnu::always_inline]] STEELYARD_HOST_DEVICE inline QParams<ComputeType<V>> qparams_of_range(
    double lo, double hi, CodeRange range, bool symmetric) {
  using T = ComputeType<V>;
  // A zero range is computed like others and replaced at the end: loops over sets vectorize.
  const bool is_zero = is_zero_range(lo, hi);
  const std::int32_t zero =
      static_cast<std::int32_t>(clamp_keeping_nan<double>(0, range.qmin, range.qmax));
  if (symmetric) {
    const double amax = -lo > hi ? -lo : hi;
    const T scale = bounded_scale<V>(amax / range.qmax, largest_operand(range, 0));
    return {is_zero ? T(1) : scale, is_zero ? zero : 0};
  }
  const double low = lo < 0 ? lo : 0;
  const double high = hi > 0 ? hi : 0;
  // Halves: the difference of two doubles may overflow where half of it does not.
  const double wide = (high / 2 - low / 2) / (range.qmax - range.qmin) * 2;
  const double scale = wide < DBL_MIN ? DBL_MIN : wide;  // denormal extremes: 0 / 0 otherwise
  const double zero_point = zero_point_of_lowest(low, scale, range);
  const T bounded = bounded_scale<V>(scale, largest_operand(range, zero_point));
  return {is_zero ? T(1) : bounded, is_zero ? zero : static_cast<std::int32_t>(zero_point)};
}

// Finite scale > 0, zero point within the range, and 0 where symmetric.
template <typename T>
STEELYARD_HOST_DEVICE inline bool valid_qparams(T scale, std::int32_t zero_point, CodeRange range,
                                                bool symmetric) {
  const bool finite = static_cast<double>(scale) <= ScaleLimits<T>::kLargest;
  return finite && scale > T(0) && zero_point >= range.qmin && zero_point <= range.qmax &&
         (!symmetric || zero_point == 0);
}

// The exponential moving average m + c * (x - m), in halves where x - m is no finite double. A
// constant of 1 gives x, which m + (x - m) need not be (after 1e30 it gives 0 for 0.3).
template <typename T>
[[gnu::always_inline]] STEELYARD_HOST_DEVICE inline T moving_average(T average, T value,
                                                                     double constant) {
  if (constant == 1) return value;
  const double m = static_cast<double>(average);
  const double x = static_cast<double>(value);
  const double step = x - m;
  const double half = constant * (x / 2 - m / 2);
  const bool fits = step <= DBL_MAX && step >= -DBL_MAX;
  return static_cast<T>(fits ? m + constant * step : (m + half) + half);
}

// One call's extremes enter an average of both ends; lo > hi says that none has yet, or that the
// call saw no finite value. Extremes are +0 where they are zeros. Rounding must not leave lo above
// hi, which would start the average again.
template <typename T>
[[gnu::always_inline]] STEELYARD_HOST_DEVICE inline void update_range(T& lo, T& hi, T call_lo,
                                                                      T call_hi, double constant) {
  const bool met = call_lo <= call_hi;
  const bool first = !(lo <= hi);
  const T new_lo = first ? call_lo : moving_average(lo, call_lo, constant);
  const T new_hi = first ? call_hi : moving_average(hi, call_hi, constant);
  lo = met ? new_lo : lo;
  hi = met ? (new_hi < new_lo ? new_lo : new_hi) : hi;
}

}  // namespace steelyard::kernels
