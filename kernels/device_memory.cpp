#include "steelyard/kernels/device_memory.h"

#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

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
    : memory_(device == DeviceType::kCpu ? ::operator new(bytes, kAlignment) : cuda_allocate(bytes),
              {device}),
      bytes_(bytes) {
  if (memory_ == nullptr && bytes > 0) throw std::bad_alloc();
}

void DeviceBuffer::Release::operator()(void* memory) const noexcept {
  device == DeviceType::kCpu ? ::operator delete(memory, kAlignment) : cuda_release(memory);
}

void DeviceBuffer::copy_from_host(const void* host, std::size_t bytes) {
  require(bytes, bytes_);
  if (bytes == 0) return;
  if (memory_.get_deleter().device == DeviceType::kCpu) {
    std::memcpy(memory_.get(), host, bytes);
  } else {
    cuda_copy_to_device({}, memory_.get(), host, bytes);
    cuda_synchronize({});  // streams of the caller do not wait for the default one by themselves
  }
}

void DeviceBuffer::copy_to_host(void* host, std::size_t bytes) const {
  require(bytes, bytes_);
  if (bytes == 0) return;
  if (memory_.get_deleter().device == DeviceType::kCpu) {
    std::memcpy(host, memory_.get(), bytes);
  } else {
    cuda_copy_to_host({}, host, memory_.get(), bytes);
  }
}

}  // namespace steelyard::kernels
