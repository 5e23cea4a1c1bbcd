// Codes of fewer than 8 bits from one byte each and back.
#pragma once

#include <cstdint>

#include "steelyard/kernels/code_type.h"
#include "steelyard/kernels/cpu/vectorize.h"

namespace steelyard::kernels {

template <int kBits>
void pack_fields(const std::uint8_t* codes, std::int64_t n, std::uint8_t* packed) {
  constexpr int kPerByte = 8 / kBits;
  constexpr unsigned kField = (1U << kBits) - 1U;
  STEELYARD_VECTORIZE
  for (std::int64_t byte = 0; byte < n / kPerByte; ++byte) {
    unsigned value = 0;
    for (int i = 0; i < kPerByte; ++i) {
      value |= (codes[byte * kPerByte + i] & kField) << (i * kBits);
    }
    packed[byte] = static_cast<std::uint8_t>(value);
  }
  if (n % kPerByte == 0) return;
  unsigned tail = 0;
  for (std::int64_t i = n / kPerByte * kPerByte; i < n; ++i) {
    tail |= (codes[i] & kField) << (i % kPerByte * kBits);
  }
  packed[n / kPerByte] = static_cast<std::uint8_t>(tail);
}

template <int kBits>
void unpack_fields(const std::uint8_t* packed, std::int64_t n, bool is_signed,
                   std::uint8_t* codes) {
  constexpr int kPerByte = 8 / kBits;
  const auto code = [is_signed](unsigned byte, int i) {
    return static_cast<std::uint8_t>(decode_code(byte >> (i * kBits), kBits, is_signed));
  };
  STEELYARD_VECTORIZE
  for (std::int64_t byte = 0; byte < n / kPerByte; ++byte) {
    for (int i = 0; i < kPerByte; ++i) codes[byte * kPerByte + i] = code(packed[byte], i);
  }
  for (std::int64_t i = n / kPerByte * kPerByte; i < n; ++i) {
    codes[i] = code(packed[n / kPerByte], static_cast<int>(i % kPerByte));
  }
}

// Packs n codes of 4 or 2 bits; the last byte's unused bits are 0.
inline void pack_codes(const std::uint8_t* codes, std::int64_t n, int bits, std::uint8_t* packed) {
  bits == 4 ? pack_fields<4>(codes, n, packed) : pack_fields<2>(codes, n, packed);
}

// One byte per code, sign extended where is_signed.
inline void unpack_codes(const std::uint8_t* packed, std::int64_t n, int bits, bool is_signed,
                         std::uint8_t* codes) {
  bits == 4 ? unpack_fields<4>(packed, n, is_signed, codes)
            : unpack_fields<2>(packed, n, is_signed, codes);
}

}  // namespace steelyard::kernels
