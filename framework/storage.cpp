#include "framework/storage.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <vector>

namespace steelyard {
namespace {

constexpr std::size_t kAlignment = 64;

// Free blocks by size class. Fresh memory costs a page fault per 4 KiB, which for activations is as
// much as the kernel that fills them; a training step asks for the same sizes every time.
class CpuAllocator {
 public:
  void* allocate(std::size_t bytes) {
    const std::size_t size = size_class(bytes);
    const std::lock_guard lock(mutex_);
    stats_.in_use_bytes += static_cast<std::int64_t>(size);
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.in_use_bytes);
    auto found = free_.find(size);
    if (found != free_.end() && !found->second.empty()) {
      void* block = found->second.back();
      found->second.pop_back();
      stats_.cached_bytes -= static_cast<std::int64_t>(size);
      return block;
    }
    void* block = std::aligned_alloc(kAlignment, size);
    if (block == nullptr) {
      release_locked();
      block = std::aligned_alloc(kAlignment, size);
    }
    if (block == nullptr) {
      stats_.in_use_bytes -= static_cast<std::int64_t>(size);
      throw std::bad_alloc();
    }
    return block;
  }

  void release(void* block, std::size_t bytes) {
    const std::size_t size = size_class(bytes);
    const std::lock_guard lock(mutex_);
    free_[size].push_back(block);
    stats_.in_use_bytes -= static_cast<std::int64_t>(size);
    stats_.cached_bytes += static_cast<std::int64_t>(size);
  }

  void release_cached() {
    const std::lock_guard lock(mutex_);
    release_locked();
  }

  AllocatorStats stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

  void reset_peak() {
    const std::lock_guard lock(mutex_);
    stats_.peak_bytes = stats_.in_use_bytes;
  }

 private:
  // Rounds up so that at most an eighth is wasted: multiples of 1/8 of the power of two below.
  static std::size_t size_class(std::size_t bytes) {
    if (bytes <= 512) return (bytes + kAlignment - 1) / kAlignment * kAlignment;
    const std::size_t step = std::bit_floor(bytes) / 8;
    return (bytes + step - 1) / step * step;
  }

  void release_locked() {
    for (auto& [size, blocks] : free_) {
      for (void* block : blocks) std::free(block);
      stats_.cached_bytes -= static_cast<std::int64_t>(size * blocks.size());
      blocks.clear();
    }
  }

  std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;
  AllocatorStats stats_;
};

// Never destroyed: tensors with static lifetime may outlive any destruction order.
CpuAllocator& cpu_allocator() {
  static auto* allocator = new CpuAllocator();
  return *allocator;
}

}  // namespace

Storage::Storage(std::size_t bytes, Device device) : bytes_(bytes), device_(device) {
  if (device.kind != Device::Kind::kCpu) {
    throw std::invalid_argument("[storage] no allocator for device " + device_name(device));
  }
  if (bytes > 0) data_ = cpu_allocator().allocate(bytes);
}

Storage::~Storage() {
  if (data_ != nullptr) cpu_allocator().release(data_, bytes_);
}

AllocatorStats allocator_stats() { return cpu_allocator().stats(); }
void reset_allocator_peak() { cpu_allocator().reset_peak(); }
void release_cached_memory() { cpu_allocator().release_cached(); }

}  // namespace steelyard
