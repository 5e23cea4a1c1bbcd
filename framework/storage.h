// Raw memory of tensors, from a caching allocator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "framework/device.h"

namespace steelyard {

// What an allocator holds, in bytes.
struct AllocatorStats {
  std::int64_t in_use_bytes = 0;
  std::int64_t peak_bytes = 0;    // largest in_use_bytes since start or reset_peak
  std::int64_t cached_bytes = 0;  // free blocks kept for reuse
};

// One block of memory on a device, 64-byte aligned; returned to the allocator's cache on
// destruction. Size 0 gives a null pointer.
class Storage {
 public:
  Storage(std::size_t bytes, Device device);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Device device_;
};

AllocatorStats allocator_stats();
void reset_allocator_peak();
// Returns every cached free block to the operating system.
void release_cached_memory();

}  // namespace steelyard
