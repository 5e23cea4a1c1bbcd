// The fixed-point arithmetic of TFLite Micro, host and device: from integers to codes without
// floating point, as its reference kernels compute them. Source: the files common.cc,
// quantization_util.cc, kernel_util.cc and reference/ below tensorflow/lite/kernels/ of
// tflite-micro.
//
// A real factor is a multiplier of 31 bits and a power of two, found in double from the scales. An
// overflow, which those kernels leave undefined, wraps here.
#pragma once

#include <cmath>
#include <cstdint>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/host_device.h"

namespace steelyard::kernels {

// How integers are rounded to codes: as floats, once (affine.h), or in fixed point, twice or once
// (TFLite Micro built with TFLITE_SINGLE_ROUNDING).
enum class Rounding { kFloat, kFixedTwice, kFixedOnce };

STEELYARD_HOST_DEVICE constexpr bool is_fixed_point(Rounding rounding) {
  return rounding != Rounding::kFloat;
}

// The factor multiplier * 2^(shift - 31).
struct FixedMultiplier {
  std::int32_t multiplier = 0;
  std::int32_t shift = 0;
  bool operator==(const FixedMultiplier&) const = default;
};

// Of a finite factor >= 0: the nearest one, ties away from 0; below 2^-32 it is 0.
STEELYARD_HOST_DEVICE inline FixedMultiplier make_fixed_multiplier(double factor,
                                                                   Rounding rounding) {
  if (!(factor > 0)) return {};
  int shift = 0;
  const double fraction = std::frexp(factor, &shift);
  auto multiplier = static_cast<std::int64_t>(std::round(fraction * 2147483648.0));
  if (multiplier == std::int64_t{1} << 31) {
    multiplier /= 2;
    ++shift;
  }
  if (shift < -31) return {};
  if (rounding == Rounding::kFixedOnce && shift > 30) return {INT32_MAX, 30};
  return {static_cast<std::int32_t>(multiplier), shift};
}

// x * 2^left with 0 <= left, of which the low 32 bits stay.
STEELYARD_HOST_DEVICE inline std::int32_t shifted_left(std::int32_t x, std::int32_t left) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(x) << left);
}

// (x * multiplier + 2^30) >> 31: halves go up. The multiplier is not negative.
STEELYARD_HOST_DEVICE inline std::int32_t doubled_high_product(std::int32_t x,
                                                               std::int32_t multiplier) {
  const std::int64_t rounded = static_cast<std::int64_t>(x) * multiplier + (std::int64_t{1} << 30);
  return static_cast<std::int32_t>(static_cast<std::uint64_t>(rounded) >> 31);
}

// x / 2^exponent, 0 <= exponent <= 31: halves go away from 0.
STEELYARD_HOST_DEVICE inline std::int32_t divided_by_power(std::int32_t x, std::int32_t exponent) {
  const auto mask = static_cast<std::int32_t>((std::uint32_t{1} << exponent) - 1U);
  const std::int32_t threshold = (mask >> 1) + (x < 0 ? 1 : 0);
  return (x >> exponent) + ((x & mask) > threshold ? 1 : 0);
}

// x times the factor, rounded twice: first to 31 bits after the product, then to an integer.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_product_twice(std::int32_t x, FixedMultiplier by) {
  const std::int32_t left = by.shift > 0 ? by.shift : 0;
  const std::int32_t right = by.shift > 0 ? 0 : -by.shift;
  return divided_by_power(
      doubled_high_product(shifted_left(x, left < 31 ? left : 31), by.multiplier), right);
}

// x times the factor, rounded once: halves go up.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_product_once(std::int32_t x, FixedMultiplier by) {
  // Shifts of what is never negative: processors without AVX-512 have no others of 64 bits.
  constexpr std::uint64_t kAbove = std::uint64_t{1} << 62;
  const std::int32_t total = 31 - by.shift;
  const auto product = static_cast<std::uint64_t>(static_cast<std::int64_t>(x) * by.multiplier);
  const std::uint64_t sum = product + kAbove + (std::uint64_t{1} << (total - 1));
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(sum >> total) -
                                   static_cast<std::uint32_t>(kAbove >> total));
}

STEELYARD_HOST_DEVICE inline std::int32_t fixed_product(std::int32_t x, FixedMultiplier by,
                                                        Rounding rounding) {
  return rounding == Rounding::kFixedOnce ? fixed_product_once(x, by) : fixed_product_twice(x, by);
}

// a + b, of which the low 32 bits stay.
STEELYARD_HOST_DEVICE inline std::int32_t wrapped_sum(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}

// M = s_a * s_b / s_y of a product of codes less their zero points.
STEELYARD_HOST_DEVICE inline FixedMultiplier fixed_mul(float scale_a, float scale_b, float scale,
                                                       Rounding rounding) {
  const double scales = static_cast<double>(scale_a) * static_cast<double>(scale_b);
  return make_fixed_multiplier(scales / static_cast<double>(scale), rounding);
}

// The code of an accumulator with its bias, not clamped.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_code(std::int32_t sum, FixedMultiplier by,
                                                     std::int32_t zero_point, Rounding rounding) {
  return wrapped_sum(fixed_product(sum, by, rounding), zero_point);
}

// The sum of two quantized tensors: both are brought to twice the larger scale with 20 more bits.
struct FixedAdd {
  FixedMultiplier of_a, of_b, of_sum;
  std::int32_t zero_a = 0;
  std::int32_t zero_b = 0;
  std::int32_t zero_point = 0;
};

inline constexpr int kFixedAddBits = 20;

// The factor from such a sum to codes of `scale`; TFLite Micro needs one below 1.
STEELYARD_HOST_DEVICE inline double fixed_sum_factor(float scale_a, float scale_b, float scale) {
  const double twice = 2.0 * static_cast<double>(scale_a > scale_b ? scale_a : scale_b);
  return twice / (static_cast<double>(1 << kFixedAddBits) * static_cast<double>(scale));
}

STEELYARD_HOST_DEVICE inline FixedAdd make_fixed_add(const CodeGrid<float>& a,
                                                     const CodeGrid<float>& b,
                                                     const CodeGrid<float>& y, Rounding rounding) {
  const double twice = 2.0 * static_cast<double>(a.scale > b.scale ? a.scale : b.scale);
  return {make_fixed_multiplier(static_cast<double>(a.scale) / twice, rounding),
          make_fixed_multiplier(static_cast<double>(b.scale) / twice, rounding),
          make_fixed_multiplier(fixed_sum_factor(a.scale, b.scale, y.scale), rounding),
          static_cast<std::int32_t>(a.zero_point),
          static_cast<std::int32_t>(b.zero_point),
          static_cast<std::int32_t>(y.zero_point)};
}

// The code of the sum, not clamped.
STEELYARD_HOST_DEVICE inline std::int32_t fixed_add_code(std::int32_t a, std::int32_t b,
                                                         const FixedAdd& add, Rounding rounding) {
  const std::int32_t of_a =
      fixed_product(shifted_left(a - add.zero_a, kFixedAddBits), add.of_a, rounding);
  const std::int32_t of_b =
      fixed_product(shifted_left(b - add.zero_b, kFixedAddBits), add.of_b, rounding);
  return fixed_code(wrapped_sum(of_a, of_b), add.of_sum, add.zero_point, rounding);
}

// The factor of a mean of `count` codes, from their sum: s_x / s_y with the division by the count
// in the multiplier, which keeps as many bits of it as there are.
STEELYARD_HOST_DEVICE inline FixedMultiplier fixed_mean(float in_scale, std::int64_t count,
                                                        float scale, Rounding rounding) {
  const FixedMultiplier whole =
      make_fixed_multiplier(static_cast<double>(in_scale) / static_cast<double>(scale), rounding);
  std::int32_t shift = 0;
  while (shift < 32 && count >> (shift + 1) != 0) ++shift;
  if (shift > 31 + whole.shift) shift = 31 + whole.shift;
  const std::int64_t divided = (static_cast<std::int64_t>(whole.multiplier) << shift) / count;
  return {static_cast<std::int32_t>(divided), whole.shift - shift};
}

// The average of `count` codes from the sum of the codes themselves, on the same grid: halves go
// away from 0, zero points left aside.
STEELYARD_HOST_DEVICE inline std::int32_t averaged_code(std::int32_t sum, std::int32_t count) {
  return (sum > 0 ? sum + count / 2 : sum - count / 2) / count;
}

// activation_code_range() as TFLite Micro has it: the code of 6 is rounded away from 0.
STEELYARD_HOST_DEVICE inline CodeRange fixed_activation_code_range(Activation activation,
                                                                   CodeRange range, float scale,
                                                                   std::int32_t zero_point) {
  CodeRange left = range;
  if (activation == Activation::kNone) return left;
  left.qmin = zero_point > range.qmin ? zero_point : range.qmin;
  if (activation == Activation::kRelu6) {
    const float most = std::round(6.0F / scale) + static_cast<float>(zero_point);
    if (most < static_cast<float>(range.qmax)) left.qmax = static_cast<std::int32_t>(most);
  }
  return left;
}

// The codes that an activation leaves, by the rounding.
STEELYARD_HOST_DEVICE inline CodeRange activation_code_range(Activation activation, CodeRange range,
                                                             float scale, std::int32_t zero_point,
                                                             Rounding rounding) {
  return is_fixed_point(rounding)
             ? fixed_activation_code_range(activation, range, scale, zero_point)
             : activation_code_range(activation, range, scale, zero_point);
}

}  // namespace steelyard::kernels
