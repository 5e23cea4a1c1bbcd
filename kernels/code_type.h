// Integer code formats: 8 bits to a code, or 4 or 2 packed, the first element in the lowest bits.
//
// Packed codes of consecutive elements share a byte across rows too: element i of the dense array
// is at bit i * bits % 8 of byte i * bits / 8. Unused bits of the last byte are 0.
#pragma once

#include <cstdint>

#include "steelyard/kernels/affine.h"

namespace steelyard::kernels {

enum class CodeType { kS8, kU8, kS4, kU4, kS2, kU2 };

constexpr STEELYARD_HOST_DEVICE int code_bits(CodeType type) {
  switch (type) {
    case CodeType::kS4:
    case CodeType::kU4:
      return 4;
    case CodeType::kS2:
    case CodeType::kU2:
      return 2;
    default:
      return 8;
  }
}

constexpr STEELYARD_HOST_DEVICE bool code_is_signed(CodeType type) {
  return type == CodeType::kS8 || type == CodeType::kS4 || type == CodeType::kS2;
}

// All codes that the type can hold.
constexpr STEELYARD_HOST_DEVICE CodeRange whole_range(CodeType type) {
  const int bits = code_bits(type);
  if (code_is_signed(type)) return {-(1 << (bits - 1)), (1 << (bits - 1)) - 1};
  return {0, (1 << bits) - 1};
}

constexpr std::int64_t packed_bytes(CodeType type, std::int64_t codes) {
  return (codes * code_bits(type) + 7) / 8;
}

// Bytes of the packed 1-bit mask of n elements.
constexpr std::int64_t mask_bytes(std::int64_t n) { return (n + 7) / 8; }

// The lowest `bits` bits of `field` as a code.
STEELYARD_HOST_DEVICE inline std::int32_t decode_code(std::uint32_t field, int bits,
                                                      bool is_signed) {
  const std::uint32_t value = field & ((1U << bits) - 1U);
  const std::uint32_t sign = is_signed ? 1U << (bits - 1) : 0U;
  return static_cast<std::int32_t>(value ^ sign) - static_cast<std::int32_t>(sign);
}

}  // namespace steelyard::kernels
