// Raw memory of tensors, from a caching allocator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>

#include "steelyard/framework/tensor/device.h"

namespace steelyard {

// The memory that an allocator holds, in bytes.
struct AllocatorStats {
  std::int64_t in_use_bytes = 0;
  std::int64_t peak_bytes = 0;    // largest in_use_bytes since start or reset_peak
  std::int64_t cached_bytes = 0;  // free blocks kept for reuse
};

// A device's memory is used up; the message says how much was asked and is held.
class OutOfMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One block of memory on a device, 64-byte aligned; returned to the allocator's cache on
// destruction. Size 0 gives a null pointer. Throws OutOfMemory.
class Storage {
 public:
  Storage(std::size_t bytes, Device device);
  // Memory of somebody else's, which lives as long as `owner`; that is never null.
  Storage(void* data, std::size_t bytes, Device device, std::shared_ptr<const void> owner);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  // Copies the bytes to another device and stays there: everything that shares this storage moves.
  // An owner is let go.
  void move_to(Device device);

  // How often the bytes were replaced in place or moved, as far as this object was told.
  std::uint64_t version() const { return version_; }
  void mark_changed() { ++version_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Device device_;
  std::shared_ptr<const void> owner_;  // null: the memory is the allocator's
  std::uint64_t version_ = 0;
};

AllocatorStats allocator_stats(Device device = {});
void reset_allocator_peak(Device device = {});
// Returns every cached free block to the operating system or the driver.
void release_cached_memory(Device device = {});

// Copies bytes from one device's memory to another's, or within one. The source may be used again
// when this returns, the copy is seen by what is queued later.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device,
                std::size_t bytes);

}  // namespace steelyard
