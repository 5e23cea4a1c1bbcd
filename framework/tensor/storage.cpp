#include "steelyard/framework/tensor/storage.h"

#include <cstring>
#include <utility>

#include "steelyard/framework/tensor/caching_allocator.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/cuda/cuda_memory.h"

namespace steelyard {

Storage::Storage(std::size_t bytes, Device device) : bytes_(bytes), device_(device) {
  if (bytes > 0) data_ = allocator(device).take(bytes);
}

Storage::Storage(void* data, std::size_t bytes, Device device, std::shared_ptr<const void> owner)
    : data_(data), bytes_(bytes), device_(device), owner_(std::move(owner)) {}

Storage::~Storage() {
  if (data_ != nullptr && owner_ == nullptr) allocator(device_).give_back(data_, bytes_);
}

void Storage::move_to(Device device) {
  if (device == device_) return;
  Storage there(bytes_, device);
  copy_bytes(there.data_, device, data_, device_, bytes_);
  std::swap(data_, there.data_);
  std::swap(device_, there.device_);
  std::swap(owner_, there.owner_);
  mark_changed();
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device,
                std::size_t bytes) {
  if (bytes == 0) return;
  const bool to_host = to_device.kind == Device::Kind::kCpu;
  const bool from_host = from_device.kind == Device::Kind::kCpu;
  if (to_host && from_host) {
    std::memcpy(to, from, bytes);
  } else if (to_host) {
    kernels::cuda_copy_to_host(cuda_queue(from_device), to, from, bytes);
  } else if (from_host) {
    kernels::cuda_copy_to_device(cuda_queue(to_device), to, from, bytes);
  } else if (to_device == from_device) {
    kernels::cuda_copy_on_device(cuda_queue(to_device), to, from, bytes);
  } else {
    throw std::invalid_argument("[copy] from " + device_name(from_device) + " to " +
                                device_name(to_device) + ": go through the CPU");
  }
}

AllocatorStats allocator_stats(Device device) { return allocator(device).stats(); }
void reset_allocator_peak(Device device) { allocator(device).reset_peak(); }
void release_cached_memory(Device device) { allocator(device).release_cached(); }

}  // namespace steelyard
