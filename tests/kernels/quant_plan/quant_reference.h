// The definition of quantization in plain scalar code, for tests: float64 quotients rounded to the
// arithmetic's type, and no line shared with kernels/.
//
// The double quotient of two floats, rounded to float, is the IEEE float quotient (53 >= 2 * 24 + 2
// bits); the same holds for the product.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "steelyard/kernels/quant_plan/quant_plan.h"

namespace steelyard::kernels::reference {

// Half and bfloat16 by searching the format's own values.
inline double half_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

inline double bfloat16_value(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return static_cast<double>(value);
}

// The pattern below (or equal to) and above |value| whose distance is smaller, ties to even.
template <typename ValueOf>
std::uint16_t nearest(double value, std::uint16_t infinity, ValueOf value_of) {
  if (std::isnan(value)) return 0x7FFF;
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  std::uint16_t low = 0;
  std::uint16_t high = infinity;
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (value_of(middle) <= magnitude ? low : high) = middle;
  }
  // Infinity rounds as if it were the next finite value.
  const double below = value_of(low);
  const double above =
      high == infinity ? 2 * below - value_of(static_cast<std::uint16_t>(low - 1)) : value_of(high);
  if (magnitude == std::numeric_limits<double>::infinity()) return sign | infinity;
  const double to_low = magnitude - below;
  const double to_high = above - magnitude;
  const bool up = to_high < to_low || (to_high == to_low && low % 2 == 1);
  return static_cast<std::uint16_t>(sign | (up ? high : low));
}

// Values of a format, stored as the kernels store them and seen as doubles.
struct Values {
  ValueType type;
  std::vector<std::uint8_t> bytes;

  Values(ValueType value_type, std::int64_t n)
      : type(value_type), bytes(static_cast<std::size_t>(n * value_bytes(value_type)), 0xCD) {}

  void* data() { return bytes.data(); }
  const void* data() const { return bytes.data(); }

  double get(std::int64_t i) const {
    const std::uint8_t* at = bytes.data() + i * value_bytes(type);
    switch (type) {
      case ValueType::kF64: {
        double value;
        std::memcpy(&value, at, 8);
        return value;
      }
      case ValueType::kF32: {
        float value;
        std::memcpy(&value, at, 4);
        return static_cast<double>(value);
      }
      default:
        break;
    }
    std::uint16_t bits;
    std::memcpy(&bits, at, 2);
    return type == ValueType::kF16 ? half_value(bits) : bfloat16_value(bits);
  }
  void set(std::int64_t i, double value) {
    std::uint8_t* at = bytes.data() + i * value_bytes(type);
    if (type == ValueType::kF64) {
      std::memcpy(at, &value, 8);
    } else if (type == ValueType::kF32) {
      const float narrowed = static_cast<float>(value);
      std::memcpy(at, &narrowed, 4);
    } else {
      const std::uint16_t bits = type == ValueType::kF16 ? nearest(value, 0x7C00, half_value)
                                                         : nearest(value, 0x7F80, bfloat16_value);
      std::memcpy(at, &bits, 2);
    }
  }
};

// Arithmetic of T on doubles that hold values of T.
template <typename T>
T as(double value) {
  return static_cast<T>(value);
}

struct Element {
  double code;  // clamped; NaN stays
  bool inside;
  double y;  // fake-quantized, before narrowing to the format
  double quotient;
  double rounded;  // rint(quotient)
};

template <typename T>
Element element(double x, double scale, std::int32_t z, CodeRange range) {
  Element e;
  e.quotient = static_cast<double>(as<T>(x) / as<T>(scale));
  e.rounded = std::nearbyint(e.quotient);
  const double u = static_cast<double>(as<T>(e.rounded) + as<T>(z));
  e.inside = std::isnan(u) || (u >= range.qmin && u <= range.qmax);
  e.code = std::isnan(u) ? u : std::max<double>(range.qmin, std::min<double>(range.qmax, u));
  e.y = static_cast<double>(as<T>(e.code - z) * as<T>(scale));
  if (e.y == 0) e.y = 0.0;
  return e;
}

// Parameter set of a logical index, straight from the definition of the granularity.
inline std::int64_t set_of(const QuantDescriptor& d, std::int64_t index) {
  const int rank = static_cast<int>(d.shape.size());
  std::vector<std::int64_t> at(d.shape.size());
  for (int axis = rank - 1; axis >= 0; --axis) {
    at[axis] = index % d.shape[axis];
    index /= d.shape[axis];
  }
  const int axis = d.options.axis < 0 ? d.options.axis + rank : d.options.axis;
  std::int64_t set = 0;
  for (int i = 0; i < rank; ++i) {
    std::int64_t block = 1;
    switch (d.granularity) {
      case Granularity::kTensor:
        return 0;
      case Granularity::kChannel:
        if (i == axis) return at[i];
        continue;
      case Granularity::kToken:
        if (i == rank - 1) return set;
        break;
      case Granularity::kGroup:
        if (i == axis) block = d.options.group_size;
        break;
      case Granularity::kBlock:
        if (i == rank - 2) block = d.options.block_rows;
        if (i == rank - 1) block = d.options.block_columns;
        break;
    }
    set = set * ((d.shape[i] + block - 1) / block) + at[i] / block;
  }
  return set;
}

// Where a logical index lies in memory.
inline std::int64_t offset_of(const QuantDescriptor& d, std::int64_t index) {
  if (d.strides.empty()) return index;
  std::int64_t offset = 0;
  for (int axis = static_cast<int>(d.shape.size()) - 1; axis >= 0; --axis) {
    offset += index % d.shape[axis] * d.strides[axis];
    index /= d.shape[axis];
  }
  return offset;
}

// A code of a packed array.
inline std::int32_t code_at(CodeType type, const std::vector<std::uint8_t>& codes, std::int64_t i) {
  const int bits = code_bits(type);
  const int field =
      codes[static_cast<std::size_t>(i * bits / 8)] >> (i * bits % 8) & ((1 << bits) - 1);
  const bool negative = code_is_signed(type) && field >= 1 << (bits - 1);
  return negative ? field - (1 << bits) : field;
}

// Random values with ties, endpoints, NaN, infinities, denormals and zeros of both signs mixed in.
inline void fill_awkward(Values& values, std::int64_t count, const std::vector<std::int64_t>& where,
                         const std::vector<double>& scale, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, 6);
  const double inf = std::numeric_limits<double>::infinity();
  const double tiny[] = {4.9e-324, 1.4e-45, 6e-8, 9.2e-41};
  for (std::int64_t i = 0; i < count; ++i) {
    const double s = scale[static_cast<std::size_t>(i) % scale.size()];
    double value = normal(random);
    switch (random() % 16) {
      case 0:
        value = (static_cast<double>(random() % 41) - 20.5) * s;
        break;  // ties
      case 1:
        value = static_cast<double>(static_cast<int>(random() % 600) - 300) * s;
        break;
      case 2:
        value = random() % 2 == 0 ? 0.0 : -0.0;
        break;
      case 3:
        value = tiny[random() % 4] * (random() % 2 == 0 ? 1 : -1);
        break;
      default:
        break;
    }
    if (random() % 64 == 0) {
      const double special[] = {inf, -inf, std::numeric_limits<double>::quiet_NaN(), 3e38, -3e38};
      value = special[random() % 5];
    }
    values.set(where[static_cast<std::size_t>(i)], value);
  }
}

}  // namespace steelyard::kernels::reference
