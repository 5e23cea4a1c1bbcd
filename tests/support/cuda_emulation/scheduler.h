// Runs the threads of a grid, block after block, each thread until it waits for others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "tests/support/cuda_emulation/collective.h"
#include "tests/support/cuda_emulation/vector_types.h"

namespace steelyard::emulation {

// The coordinates of the running thread.
struct Coordinates {
  uint3 thread{};
  uint3 block{};
  dim3 block_size;
  dim3 grid_size;
};
extern Coordinates coordinates;

// How many blocks have begun to run: the running one's number.
extern std::uint64_t blocks_begun;

struct Grid {
  std::int64_t blocks = 0;
  int threads = 0;
  std::size_t shared_bytes = 0;
};

// Calls body once for every thread, under the options() in force. Throws what a thread throws, and
// std::logic_error for impossible sizes, for threads that wait for others in vain and for writes
// beside the shared memory. One grid at a time, from one host thread.
void run_grid(const Grid& grid, const std::function<void()>& body);

// Called by a running thread: waits for the others that take part, returns what this thread gets.
std::uint64_t collective(const Request& request);

// The running block's.
std::byte* shared_memory();

}  // namespace steelyard::emulation
