// Memory that is kept for reuse by size class, for each device.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "framework/storage.h"
#include "kernels/cuda_queue.h"

namespace steelyard {

// Fresh memory costs: on the CPU a page fault per 4 KiB, which for activations is as much as the
// kernel that fills them, on a GPU a wait for the device. A training step asks for the same sizes
// every time, so free blocks are kept.
class CachingAllocator : public kernels::ScratchMemory {
 public:
  explicit CachingAllocator(Device device) : device_(device) {}

  // 64-byte aligned; null for 0 bytes. Throws OutOfMemory.
  void* take(std::size_t bytes) override;
  void give_back(void* block, std::size_t bytes) noexcept override;
  void release_cached();
  AllocatorStats stats();
  void reset_peak();

 private:
  void* fresh(std::size_t size);  // null where there is none
  void release_locked() noexcept;

  const Device device_;
  std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;
  AllocatorStats stats_;
};

// The device's, made at its first use. Never destroyed: tensors with static lifetime may outlive
// any destruction order.
CachingAllocator& allocator(Device device);

}  // namespace steelyard
