// A mask's bits eight at a time, as kernels of one thread per byte write them.
#pragma once

#include <cstdint>

#include "steelyard/kernels/affine.h"

namespace steelyard::kernels {

// Calls passes(i) for the elements of a mask's byte, those below `size`, and writes its bits; tail
// bits are 0. `mask` may be null.
template <class Passes>
STEELYARD_HOST_DEVICE void write_mask_byte(std::int64_t byte, std::int64_t size, std::uint8_t* mask,
                                           Passes&& passes) {
  const std::int64_t first = 8 * byte;
  const int count = size - first < 8 ? static_cast<int>(size - first) : 8;
  unsigned bits = 0;
  for (int i = 0; i < count; ++i) bits |= (passes(first + i) ? 1U : 0U) << i;
  if (mask != nullptr) mask[byte] = static_cast<std::uint8_t>(bits);
}

}  // namespace steelyard::kernels
