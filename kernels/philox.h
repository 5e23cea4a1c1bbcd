// Counter-based random numbers, host and device: Philox4x32-10.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
#pragma once

#include <cstdint>

#include "steelyard/kernels/affine.h"

namespace steelyard::kernels {

// Four 32-bit words: a counter, or the random block made of it.
struct PhiloxBlock {
  std::uint32_t words[4];
};

STEELYARD_HOST_DEVICE inline PhiloxBlock philox(PhiloxBlock counter, std::uint32_t key0,
                                                std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t* c = counter.words;
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * c[2];
    counter = {{static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ key0, static_cast<std::uint32_t>(p1),
                static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ key1,
                static_cast<std::uint32_t>(p0)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// Block number `index` of one of the streams of a seed.
STEELYARD_HOST_DEVICE inline PhiloxBlock philox_block(std::uint64_t seed, std::uint64_t stream,
                                                      std::uint64_t index) {
  return philox({{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                  static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}},
                static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
}

// Uniform in [0, 1), 24 random bits: exact in float.
STEELYARD_HOST_DEVICE inline double unit_interval(std::uint32_t word) {
  return (word >> 8) * 0x1.0p-24;
}

}  // namespace steelyard::kernels
