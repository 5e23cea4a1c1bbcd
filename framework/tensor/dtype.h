// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace steelyard {

enum class DType : std::uint8_t { kF32, kF64, kF16, kBF16, kI64, kI32, kI8, kU8, kBool };

// Bytes of one element.
std::size_t dtype_bytes(DType dtype);
// "f32", "i64", "bool", ...
std::string_view dtype_name(DType dtype);
// True for f32, f64, f16 and bf16: the types that carry gradients.
bool is_floating(DType dtype);

// The DType of a C++ type; f16 and bf16 have no C++ type on the host.
template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::kI8;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::kBool;
};

}  // namespace steelyard
