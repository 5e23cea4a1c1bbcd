#include "steelyard/kernels/device_memory.h"

#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "steelyard/kernels/cuda/cuda_memory.h"

namespace steelyard::kernels {
namespace {

constexpr std::align_val_t kAlignment{64};

void require(std::size_t asked, std::size_t held) {
  if (asked <= held) return;
  throw std::invalid_argument("[device_buffer] asked to copy " + std::to_string(asked) +
                              " bytes of a buffer of " + std::to_string(held));
}

}  // namespace

bool device_is_available(DeviceType device) {
  return device == DeviceType::kCpu || cuda_is_available();
}

DeviceBuffer::DeviceBuffer(DeviceType device, std::size_t bytes)
    : device_(device),
      memory_(device == DeviceType::kCpu ? ::operator new(bytes, kAlignment)
                                         : cuda_allocate(bytes)),
      bytes_(bytes) {
  if (memory_ == nullptr && bytes > 0) throw std::bad_alloc();
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : device_(other.device_),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (device_ == DeviceType::kCpu) {
    ::operator delete(memory_, kAlignment);
  } else {
    cuda_release(memory_);
  }
}

void DeviceBuffer::copy_from_host(const void* host, std::size_t bytes) {
  require(bytes, bytes_);
  if (bytes == 0) return;
  if (device_ == DeviceType::kCpu) {
    std::memcpy(memory_, host, bytes);
  } else {
    cuda_copy_to_device({}, memory_, host, bytes);
    cuda_synchronize({});  // streams of the caller do not wait for the default one by themselves
  }
}

void DeviceBuffer::copy_to_host(void* host, std::size_t bytes) const {
  require(bytes, bytes_);
  if (bytes == 0) return;
  if (device_ == DeviceType::kCpu) {
    std::memcpy(host, memory_, bytes);
  } else {
    cuda_copy_to_host({}, host, memory_, bytes);
  }
}

}  // namespace steelyard::kernels
