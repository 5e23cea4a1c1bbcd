// Splits elementwise work into blocks that fit the first-level cache and start on mask bytes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/stream.h"

namespace steelyard::kernels {

// Elements per block: a multiple of 8, 8 KiB of float.
constexpr std::int64_t kBlock = 2048;

// Calls body(begin, end) on the blocks of [0, n), over all threads, in order within a thread.
template <typename Body>
void parallel_blocks(std::int64_t n, Body&& body) {
  constexpr std::int64_t kGrain = 8;
  parallel_for((n + kBlock - 1) / kBlock, kGrain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      body(block * kBlock, std::min(n, (block + 1) * kBlock));
    }
    stream_fence();
  });
}

// Lets `produce(out)` write a block's results: straight to `to`, or, when `stream` is set, to a
// buffer in cache that is then copied with non-temporal stores.
template <typename T, typename Produce>
void write_block(T* to, std::int64_t count, bool stream, Produce&& produce) {
  if (!stream) {
    produce(to);
    return;
  }
  alignas(64) T buffer[kBlock];
  produce(buffer);
  stream_copy(to, buffer, count * static_cast<std::int64_t>(sizeof(T)));
}

}  // namespace steelyard::kernels
