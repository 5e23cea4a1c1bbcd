// A caching allocator for each device: free blocks are kept by size class and reused.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "steelyard/framework/tensor/storage.h"
#include "steelyard/kernels/cuda_queue.h"

namespace steelyard {

// New memory is expensive: on the CPU it costs a page fault per 4 KiB, which for activations takes
// as long as the kernel that fills them; on a GPU the host must wait for the device. Training steps
// ask for the same sizes again and again, so free blocks are kept.
class CachingAllocator : public kernels::ScratchMemory {
 public:
  explicit CachingAllocator(Device device) : device_(device) {}

  // 64-byte aligned; null for 0 bytes. Throws OutOfMemory.
  void* take(std::size_t bytes) override;
  void give_back(void* block, std::size_t bytes) noexcept override;
  // Blocks taken or given back between begin_private() and end_private() stay apart: given back,
  // they are taken again only in another such section, until release_private(). Recorded work that
  // runs again later relies on them.
  void begin_private();
  void end_private();
  void release_private();
  void release_cached();
  void release_unused() noexcept override;
  AllocatorStats stats();
  void reset_peak();

 private:
  using Blocks = std::map<std::size_t, std::vector<void*>>;

  void* cached(Blocks& blocks, std::size_t size);  // null where there is none
  void* fresh(std::size_t size);                   // as above
  void release(void* block) noexcept;              // to the system or the driver
  void release_locked() noexcept;

  const Device device_;
  std::mutex mutex_;
  Blocks free_;
  Blocks private_free_;
  std::unordered_set<void*> private_blocks_;
  bool in_private_ = false;
  AllocatorStats stats_;
};

// The device's, made at its first use. Never destroyed: tensors with static lifetime may outlive
// any destruction order.
CachingAllocator& allocator(Device device);

}  // namespace steelyard
