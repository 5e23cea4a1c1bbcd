// Splits elementwise work into blocks that fit the first-level cache and start on mask bytes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/cpu/stream.h"

namespace steelyard::kernels {

// Elements per block: a multiple of 8, 8 KiB of float.
constexpr std::int64_t kBlockElements = 2048;

// Calls body(begin, end) on the blocks of [0, n), over all threads, in order within a thread.
template <typename Body>
void parallel_blocks(std::int64_t n, Body&& body) {
  constexpr std::int64_t kGrain = 8;
  parallel_for((n + kBlockElements - 1) / kBlockElements, kGrain,
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t block = first; block < last; ++block) {
                   body(block * kBlockElements, std::min(n, (block + 1) * kBlockElements));
                 }
                 stream_fence();
               });
}

// Lets produce(first, count, out) write elements [first, first + count) of a block: all at once
// straight to `to`, or, when `stream` is set, in chunks of a few cache lines that go through a
// small buffer to non-temporal stores. Small chunks keep loads and stores of memory under way at
// the same time: a buffer of a whole block reached 0.83 of copy, chunks of 512 bytes 1.03 (64 MiB);
// where producing has a cost per call, larger chunks pay. chunk_bytes is a multiple of kCacheLine,
// at most kMaxChunkBytes.
constexpr std::int64_t kSmallChunkBytes = 512;
constexpr std::int64_t kMaxChunkBytes = 2048;
template <typename T, typename Produce>
void write_block(T* to, std::int64_t count, bool stream, std::int64_t chunk_bytes,
                 Produce&& produce) {
  if (!stream) {
    produce(std::int64_t{0}, count, to);
    return;
  }
  const std::int64_t chunk = chunk_bytes / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t head = std::min(count, elements_before_line(to));
  if (head > 0) produce(std::int64_t{0}, head, to);
  std::int64_t first = head;
  for (; first + chunk <= count; first += chunk) {
    alignas(kCacheLine) T buffer[kMaxChunkBytes / sizeof(T)];
    produce(first, chunk, buffer);
    stream_lines(to + first, buffer, chunk_bytes / kCacheLine);
  }
  if (first < count) produce(first, count - first, to + first);
}

// Fetches values [begin, end) of x, as far as it has them, while other work goes on. The processor
// does so by itself only along what is being read, and pauses where a second pass over a block
// finds it in the cache.
template <typename V>
void prefetch(const V* x, std::int64_t begin, std::int64_t end, std::int64_t elements) {
  constexpr std::int64_t kLine = kCacheLine / sizeof(V);
  for (std::int64_t i = begin; i < std::min(end, elements); i += kLine) __builtin_prefetch(x + i);
}

}  // namespace steelyard::kernels
