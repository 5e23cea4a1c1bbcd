// Blocks of output pixels that threads share. Private to this family's CPU products.
#pragma once

#include <algorithm>
#include <cstdint>

#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/windows.h"

namespace steelyard::kernels {

inline constexpr std::int64_t kPixelBlock = 96;  // whose inputs stay in the cache for all columns

// Calls each(first, number) for blocks of output pixels, over all threads. A block begins with a
// byte of a mask.
template <typename Body>
void for_each_block(const Conv2dShape& s, const Body& each) {
  static_assert(kPixelBlock % 8 == 0);
  const std::int64_t pixels = s.batch * s.out_h() * s.out_w();
  // As many for each thread where there are few.
  const std::int64_t of_thread = (pixels + num_threads() - 1) / num_threads();
  const std::int64_t blocks = (of_thread + kPixelBlock - 1) / kPixelBlock;
  const std::int64_t size = ((of_thread + blocks - 1) / blocks + 7) / 8 * 8;
  constexpr std::int64_t kGrain = 1 << 18;  // multiply-adds per thread that pay for waking it
  const std::int64_t grain = kGrain / (size * s.weight_size() + 1) + 1;
  parallel_for((pixels + size - 1) / size, grain, [&](std::int64_t block, std::int64_t end) {
    for (; block < end; ++block) each(block * size, std::min(size, pixels - block * size));
  });
}

}  // namespace steelyard::kernels
