#include "steelyard/framework/tensor/caching_allocator.h"

#include <malloc.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <string>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/cuda/cuda_memory.h"

namespace steelyard {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kGpuAlignment = 512;

// Rounds up so that at most an eighth is wasted: multiples of 1/8 of the power of two below.
std::size_t size_class(std::size_t bytes, Device device) {
  const std::size_t smallest = device.kind == Device::Kind::kCpu ? kAlignment : kGpuAlignment;
  if (bytes <= 8 * smallest) return (bytes + smallest - 1) / smallest * smallest;
  const std::size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

}  // namespace

void* CachingAllocator::take(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::size_t size = size_class(bytes, device_);
  const std::lock_guard lock(mutex_);
  void* block = in_private_ ? cached(private_free_, size) : nullptr;
  if (block == nullptr) block = cached(free_, size);
  if (block == nullptr) {
    block = fresh(size);
    if (block == nullptr && !in_private_) {  // recorded work may read what it gave back
      release_locked();
      block = fresh(size);
    }
    if (block == nullptr) {
      throw OutOfMemory("out of memory on " + device_name(device_) + ": asked for " +
                        std::to_string(size) + " bytes with " +
                        std::to_string(stats_.in_use_bytes) + " in use");
    }
  }
  try {
    if (in_private_) private_blocks_.insert(block);
  } catch (const std::bad_alloc&) {
    release(block);
    throw;
  }
  stats_.in_use_bytes += static_cast<std::int64_t>(size);
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.in_use_bytes);
  return block;
}

void CachingAllocator::give_back(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return;
  const std::size_t size = size_class(bytes, device_);
  const std::lock_guard lock(mutex_);
  stats_.in_use_bytes -= static_cast<std::int64_t>(size);
  try {
    if (in_private_) private_blocks_.insert(block);  // the work being recorded may read it
    (private_blocks_.contains(block) ? private_free_ : free_)[size].push_back(block);
    stats_.cached_bytes += static_cast<std::int64_t>(size);
  } catch (const std::bad_alloc&) {
    // No place to keep it. What recorded work may read stays until the process ends.
    if (!in_private_ && !private_blocks_.contains(block)) release(block);
  }
}

void* CachingAllocator::cached(Blocks& blocks, std::size_t size) {
  const auto found = blocks.find(size);
  if (found == blocks.end() || found->second.empty()) return nullptr;
  void* block = found->second.back();
  found->second.pop_back();
  stats_.cached_bytes -= static_cast<std::int64_t>(size);
  return block;
}

void CachingAllocator::begin_private() {
  const std::lock_guard lock(mutex_);
  in_private_ = true;
}

void CachingAllocator::end_private() {
  const std::lock_guard lock(mutex_);
  in_private_ = false;
}

void CachingAllocator::release_private() {
  const std::lock_guard lock(mutex_);
  for (auto& [size, blocks] : private_free_) {
    free_[size].insert(free_[size].end(), blocks.begin(), blocks.end());
  }
  private_free_.clear();
  private_blocks_.clear();
}

void CachingAllocator::release_cached() {
  {
    const std::lock_guard lock(mutex_);
    release_locked();
  }
#ifdef __GLIBC__
  // What lies between blocks in use is kept by free().
  if (device_.kind == Device::Kind::kCpu) malloc_trim(0);
#endif
}

void CachingAllocator::release_unused() noexcept {
  const std::lock_guard lock(mutex_);
  if (!in_private_) release_locked();
}

AllocatorStats CachingAllocator::stats() {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void CachingAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak_bytes = stats_.in_use_bytes;
}

void* CachingAllocator::fresh(std::size_t size) {
  if (device_.kind == Device::Kind::kCpu) return std::aligned_alloc(kAlignment, size);
  cuda_queue(device_);  // selects the device
  return kernels::cuda_allocate(size);
}

void CachingAllocator::release(void* block) noexcept {
  if (device_.kind == Device::Kind::kCpu) {
    std::free(block);
  } else {
    kernels::cuda_release(block);
  }
}

void CachingAllocator::release_locked() noexcept {
  for (auto& [size, blocks] : free_) {
    for (void* block : blocks) release(block);
    stats_.cached_bytes -= static_cast<std::int64_t>(size * blocks.size());
    blocks.clear();
  }
}

CachingAllocator& allocator(Device device) {
  static auto* cpu = new CachingAllocator(Device{});
  if (device.kind == Device::Kind::kCpu) return *cpu;
  static std::mutex mutex;
  static auto* gpus = new std::map<int, CachingAllocator*>();
  const std::lock_guard lock(mutex);
  CachingAllocator*& found = (*gpus)[device.index];
  if (found == nullptr) found = new CachingAllocator(device);
  return *found;
}

}  // namespace steelyard
