// Number formats of values and codes at the kernels' boundary, and the two narrow floats, host and
// device.
//
// Half is IEEE binary16, BFloat16 the upper half of a float. Widening is exact; narrowing rounds
// once, half to even, keeps denormals, saturates to infinity as IEEE says and gives the NaN 0x7FFF.
#pragma once

#include <cstdint>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/bits.h"

namespace steelyard::kernels {

enum class ValueType { kF32, kF64, kF16, kBF16 };

struct Half {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

// What arithmetic on values of V is done in: double for double, float for the others.
template <typename V>
struct Compute {
  using type = float;
};
template <>
struct Compute<double> {
  using type = double;
};
template <typename V>
using ComputeType = typename Compute<V>::type;

constexpr std::int64_t value_bytes(ValueType type) {
  return type == ValueType::kF64 ? 8 : type == ValueType::kF32 ? 4 : 2;
}

// Calls f with a null pointer of the C++ type, so that `std::remove_pointer_t<decltype(tag)>` is
// it.
template <typename F>
decltype(auto) visit_value_type(ValueType type, F&& f) {
  switch (type) {
    case ValueType::kF64:
      return f(static_cast<double*>(nullptr));
    case ValueType::kF16:
      return f(static_cast<Half*>(nullptr));
    case ValueType::kBF16:
      return f(static_cast<BFloat16*>(nullptr));
    case ValueType::kF32:
      break;
  }
  return f(static_cast<float*>(nullptr));
}

STEELYARD_HOST_DEVICE inline float widen(Half value) {
#ifdef __CUDA_ARCH__
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
#else
  // The exponent moves by a product with 2^112, which also normalizes denormals.
  const std::uint32_t magnitude = static_cast<std::uint32_t>(value.bits & 0x7FFFU) << 13;
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
  const std::uint32_t finite = bits_as<std::uint32_t>(bits_as<float>(magnitude) * 0x1p112F);
  const bool special = (value.bits & 0x7C00U) == 0x7C00U;
  return bits_as<float>(sign | (special ? magnitude | 0x7F800000U : finite));
#endif
}

STEELYARD_HOST_DEVICE inline float widen(BFloat16 value) {
  return bits_as<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

STEELYARD_HOST_DEVICE inline float widen(float value) { return value; }
STEELYARD_HOST_DEVICE inline double widen(double value) { return value; }

// narrow<V>(value): value rounded to V.
template <typename V>
STEELYARD_HOST_DEVICE inline V narrow(ComputeType<V> value) {
  return value;
}

template <>
STEELYARD_HOST_DEVICE inline Half narrow<Half>(float value) {
#ifdef __CUDA_ARCH__
  std::uint16_t narrowed;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrowed) : "f"(value));
  return {narrowed};
#else
  const std::uint32_t bits = bits_as<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  // Below 2^-14 adding 0.5 leaves the denormal's integer, rounded, in the lowest bits.
  const std::uint32_t denormal =
      bits_as<std::uint32_t>(bits_as<float>(magnitude) + 0.5F) - 0x3F000000U;
  const std::uint32_t odd = (magnitude >> 13) & 1U;
  const std::uint32_t normal = (magnitude - 0x38000000U + 0xFFFU + odd) >> 13;
  const std::uint32_t finite = magnitude < 0x38800000U ? denormal : normal;
  const std::uint32_t bounded = magnitude >= 0x47800000U ? 0x7C00U : finite;
  const std::uint32_t narrowed = magnitude > 0x7F800000U ? 0x7FFFU : sign | bounded;
  return {static_cast<std::uint16_t>(narrowed)};
#endif
}

template <>
STEELYARD_HOST_DEVICE inline BFloat16 narrow<BFloat16>(float value) {
#ifdef __CUDA_ARCH__
  std::uint16_t narrowed;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrowed) : "f"(value));
  return {narrowed};
#else
  const std::uint32_t bits = bits_as<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return {static_cast<std::uint16_t>(nan ? 0x7FFFU : rounded)};
#endif
}

// A double rounded to V once. By way of the float whose last bit says that something was cut off
// (round to odd), which leaves the second rounding nothing to mistake.
// Source: Boldo and Melquiond, "When double rounding is odd", IMACS 2005.
template <typename V>
STEELYARD_HOST_DEVICE inline V narrow_once(double value) {
  if constexpr (sizeof(V) >= sizeof(float)) {
    return static_cast<V>(value);
  } else {
    const float nearest = static_cast<float>(value);
    std::uint32_t bits = bits_as<std::uint32_t>(nearest);
    if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;  // towards zero
    if (static_cast<double>(nearest) != value) bits |= 1U;
    return narrow<V>(bits_as<float>(bits));
  }
}

}  // namespace steelyard::kernels
