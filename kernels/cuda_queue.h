// Where work for a GPU goes: the first argument of every kernel that runs there.
//
// Kernels that take a CudaQueue are queued on its stream and return before they are done; their
// pointers are device memory. They throw std::runtime_error where a launch is refused and in a
// build without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "steelyard/kernels/matmul_precision.h"

namespace steelyard::kernels {

// Device memory that a kernel needs while it runs, aligned to 16 bytes at least. What was given
// back may be taken again by work that is queued later on the same stream.
class ScratchMemory {
 public:
  virtual ~ScratchMemory() = default;
  virtual void* take(std::size_t bytes) = 0;
  virtual void give_back(void* memory, std::size_t bytes) noexcept = 0;
  // Returns to the driver what is kept for reuse: a library of CUDA's needs memory of its own.
  virtual void release_unused() noexcept {}
};

struct CudaQueue {
  // Counters for the blocks of a grid that wait for each other's parts (kernels/cuda/last_block.h).
  static constexpr std::int64_t kArrivals = 2048;

  void* stream = nullptr;             // a cudaStream_t; null: the default stream
  ScratchMemory* scratch = nullptr;   // outlives the work
  std::uint32_t* arrivals = nullptr;  // [kArrivals], zeros on the device: kernels leave them so
  MatmulPrecision precision = MatmulPrecision::kFloat32;
  // What work that can be done in parts takes of scratch memory at a time.
  std::int64_t part_bytes = std::int64_t{256} << 20;
};

}  // namespace steelyard::kernels
