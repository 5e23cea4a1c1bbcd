#include "steelyard/export/c/arena.h"

#include <algorithm>
#include <numeric>

namespace steelyard::deploy {
namespace {

using PlacingOrder = std::vector<std::size_t>;

bool meet(const ArenaBuffer& a, const ArenaBuffer& b) {
  return a.first <= b.last && b.first <= a.last;
}

// Each buffer of the order at the lowest offset that is free as long as it lives.
Arena placed_in_order(std::span<const ArenaBuffer> buffers, const PlacingOrder& order) {
  Arena arena{std::vector<std::int64_t>(buffers.size(), 0), 0};
  PlacingOrder placed;  // by their offsets
  for (const std::size_t i : order) {
    std::int64_t offset = 0;
    for (const std::size_t other : placed) {
      if (!meet(buffers[i], buffers[other])) continue;
      if (offset + buffers[i].bytes <= arena.offsets[other]) break;
      offset = std::max(offset, arena.offsets[other] + buffers[other].bytes);
    }
    arena.offsets[i] = offset;
    arena.bytes = std::max(arena.bytes, offset + buffers[i].bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [&](std::int64_t at, std::size_t other) {
                                     return at < arena.offsets[other];
                                   }),
                  i);
  }
  return arena;
}

}  // namespace

std::int64_t most_live_bytes(std::span<const ArenaBuffer> buffers) {
  std::int64_t most = 0;
  for (const ArenaBuffer& at : buffers) {  // more begin to live only where one begins
    std::int64_t live = 0;
    for (const ArenaBuffer& buffer : buffers) {
      if (buffer.first <= at.first && at.first <= buffer.last) live += buffer.bytes;
    }
    most = std::max(most, live);
  }
  return most;
}

Arena plan_arena(std::span<const ArenaBuffer> buffers) {
  PlacingOrder order(buffers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return buffers[a].bytes > buffers[b].bytes;
  });
  Arena best = placed_in_order(buffers, order);
  const std::int64_t least = most_live_bytes(buffers);
  // A buffer that came too late to fit below others comes first.
  for (std::size_t i = 0; i < order.size() && best.bytes > least; ++i) {
    PlacingOrder moved = order;
    std::rotate(moved.begin(), moved.begin() + static_cast<std::ptrdiff_t>(i),
                moved.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    Arena arena = placed_in_order(buffers, moved);
    if (arena.bytes >= best.bytes) continue;
    best = std::move(arena);
    order = std::move(moved);
    i = 0;
  }
  return best;
}

}  // namespace steelyard::deploy
