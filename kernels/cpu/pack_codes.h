// Codes of fewer than 8 bits from one byte each and back.
#pragma once

#include <cstdint>

#include "kernels/code_type.h"

namespace steelyard::kernels {

// Packs n codes; the last byte's unused bits are 0.
inline void pack_codes(const std::uint8_t* codes, std::int64_t n, int bits, std::uint8_t* packed) {
  const int per_byte = 8 / bits;
  const unsigned field = (1U << bits) - 1U;
  for (std::int64_t byte = 0; byte * per_byte < n; ++byte) {
    unsigned value = 0;
    for (int i = 0; i < per_byte && byte * per_byte + i < n; ++i) {
      value |= (codes[byte * per_byte + i] & field) << (i * bits);
    }
    packed[byte] = static_cast<std::uint8_t>(value);
  }
}

// One byte per code, sign extended where is_signed.
inline void unpack_codes(const std::uint8_t* packed, std::int64_t n, int bits, bool is_signed,
                         std::uint8_t* codes) {
  const int per_byte = 8 / bits;
  for (std::int64_t i = 0; i < n; ++i) {
    const unsigned field = static_cast<unsigned>(packed[i / per_byte]) >> (i % per_byte * bits);
    codes[i] = static_cast<std::uint8_t>(decode_code(field, bits, is_signed));
  }
}

}  // namespace steelyard::kernels
