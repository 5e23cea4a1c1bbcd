// Places of buffers in one piece of memory, of which those that do not live at the same time share
// bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace steelyard::deploy {

// It lives from step `first` to step `last`, both included.
struct ArenaBuffer {
  std::int64_t bytes = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
};

struct Arena {
  std::vector<std::int64_t> offsets;  // of the buffers
  std::int64_t bytes = 0;
};

// The bytes that live in the step where most do: no arena is smaller.
std::int64_t most_live_bytes(std::span<const ArenaBuffer> buffers);

// Buffers take the lowest free place, the largest first; then other orders are tried, as long as
// one makes the arena smaller. The same buffers give the same arena everywhere.
Arena plan_arena(std::span<const ArenaBuffer> buffers);

}  // namespace steelyard::deploy
