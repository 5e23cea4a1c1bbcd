// Mask bits from byte flags and back.
#pragma once

#include <cstdint>
#include <cstring>

namespace steelyard::kernels {

// Bit i % 8 of mask[i / 8] = flags[i]; the last byte's unused bits are 0.
inline void pack_flags(const std::uint8_t* flags, std::int64_t n, std::uint8_t* mask) {
  for (std::int64_t byte = 0; byte < n / 8; ++byte) {
    std::uint64_t eight;
    std::memcpy(&eight, flags + 8 * byte, 8);
    // The product moves flag i (bit 8i, little endian) to bit 56 + i; no two terms meet.
    mask[byte] = static_cast<std::uint8_t>((eight * 0x0102040810204080ULL) >> 56);
  }
  if (n % 8 == 0) return;
  unsigned tail = 0;
  for (std::int64_t i = n / 8 * 8; i < n; ++i) tail |= static_cast<unsigned>(flags[i]) << (i % 8);
  mask[n / 8] = static_cast<std::uint8_t>(tail);
}

// flags[i] != 0 where bit i % 8 of mask[i / 8] is set, for i < n rounded up to a multiple of 8.
inline void unpack_flags(const std::uint8_t* mask, std::int64_t n, std::uint8_t* flags) {
  for (std::int64_t byte = 0; byte < (n + 7) / 8; ++byte) {
    // Byte i of the word keeps bit i of the mask.
    const std::uint64_t word = (mask[byte] * 0x0101010101010101ULL) & 0x8040201008040201ULL;
    std::memcpy(flags + 8 * byte, &word, 8);
  }
}

}  // namespace steelyard::kernels
