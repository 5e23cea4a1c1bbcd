// What the threads of a block do, and why a block whose threads all wait can not go on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/cuda_emulation/collective.h"

namespace steelyard::emulation {

enum class ThreadState : std::uint8_t {
  kUnstarted,
  kRunning,
  kAtBarrier,
  kAtWarpCollective,
  kReady,  // has stopped waiting
  kExited,
};

struct Thread {
  ThreadState state = ThreadState::kUnstarted;
  Request request;           // the one it waits for
  std::uint64_t result = 0;  // of that request
};

// The mask of the lanes that the warp beginning with thread `first` has: the last may have fewer.
unsigned existing_lanes(std::size_t threads, std::size_t first);

// "divergent barrier: 31 threads wait in ...; 1 has exited", or for a warp the missing lanes.
std::string why_stuck(const std::vector<Thread>& threads);

}  // namespace steelyard::emulation
