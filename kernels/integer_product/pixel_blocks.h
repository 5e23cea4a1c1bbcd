// The parts of a product that threads take, and the blocks within them. Private to this family's
// CPU products.
#pragma once

#include <algorithm>
#include <cstdint>

#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/windows.h"

namespace steelyard::kernels {

inline constexpr std::int64_t kPixelBlock = 96;  // whose inputs stay in the cache for all columns

// Output pixels and tiles of columns: [begin, begin + count) of each.
struct PixelBlock {
  std::int64_t first, pixels;
  std::int64_t first_tile, tiles;
};

// Pixels, a multiple of 8 so that they begin with a byte of a mask, and tiles of columns that a
// thread takes at most.
struct ThreadsPart {
  std::int64_t pixels, tiles;
};

// The columns of a product: their tiles, whether threads may share them, and for how many pixels at
// a time their sums are found.
struct Columns {
  std::int64_t tiles = 1;
  bool shared = false;
  std::int64_t rows = 1;
};

// The part with the least to do: few pixels are not enough for all threads, and then they share the
// columns.
inline ThreadsPart threads_part(std::int64_t pixels, const Columns& columns, std::int64_t threads) {
  const auto parts = [](std::int64_t n, std::int64_t size) { return (n + size - 1) / size; };
  ThreadsPart best{};
  std::int64_t least = 0;
  const std::int64_t most = columns.shared ? std::min(columns.tiles, threads) : 1;
  for (std::int64_t shares = 1; shares <= most; ++shares) {
    const ThreadsPart part{parts(parts(pixels, threads / shares), 8) * 8,
                           parts(columns.tiles, shares)};
    const std::int64_t work = parts(part.pixels, columns.rows) * part.tiles;
    if (shares == 1 || work < least) {
      best = part;
      least = work;
    }
  }
  return best;
}

// How many threads a product pays for. Two that share less than 16 us of work gain nothing: waking
// one takes 2 to 4, and what it has written is then in its cache. The unit is a multiply-add of a
// large product, of which a thread does 200 in a ns (AVX-512 with VNNI); to make codes of a sum
// takes as long as 64 to 80, and a sum of few terms, as depthwise ones are, no less. Few pixels
// take as long as 8, for all weights must be read.
inline std::int64_t threads_of(const Conv2dShape& s) {
  constexpr std::int64_t kOfThread = 3 << 19, kOfOutput = 64, kFewPixels = 8;
  const std::int64_t pixels = s.batch * s.out_h() * s.out_w();
  const std::int64_t work =
      s.weight_size() * std::max(pixels, kFewPixels) + kOfOutput * s.output_size();
  return std::clamp<std::int64_t>(work / kOfThread, 1, num_threads());
}

// Calls each(PixelBlock) for blocks of output pixels and all tiles of their columns, over all
// threads.
template <typename Body>
void for_each_block(const Conv2dShape& s, const Columns& columns, const Body& each) {
  static_assert(kPixelBlock % 8 == 0);
  const std::int64_t pixels = s.batch * s.out_h() * s.out_w();
  if (pixels == 0) return;
  const ThreadsPart part = threads_part(pixels, columns, threads_of(s));
  const std::int64_t parts = (pixels + part.pixels - 1) / part.pixels;
  const std::int64_t shares = (columns.tiles + part.tiles - 1) / part.tiles;
  parallel_for(parts * shares, 1, [&](std::int64_t i, std::int64_t end) {
    for (; i < end; ++i) {
      const std::int64_t first_tile = i / parts * part.tiles;
      const std::int64_t last = std::min(pixels, (i % parts + 1) * part.pixels);
      for (std::int64_t first = i % parts * part.pixels; first < last; first += kPixelBlock) {
        each(PixelBlock{first, std::min(kPixelBlock, last - first), first_tile,
                        std::min(part.tiles, columns.tiles - first_tile)});
      }
    }
  });
}

// The same of products whose columns are not divided: each(first pixel, number of pixels).
template <typename Body>
void for_each_block(const Conv2dShape& s, const Body& each) {
  for_each_block(s, Columns{}, [&](const PixelBlock& block) { each(block.first, block.pixels); });
}

}  // namespace steelyard::kernels
