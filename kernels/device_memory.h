// Memory on the CPU or a GPU, for programs that use the kernels alone.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "steelyard/kernels/device_type.h"

namespace steelyard::kernels {

// True for the CPU; for CUDA where it was built in and a device answers.
bool device_is_available(DeviceType device);

// Owns `bytes` of a device's memory, aligned to 64 bytes at least. Throws std::runtime_error where
// the device is not available, std::bad_alloc or std::runtime_error where memory runs out.
class DeviceBuffer {
 public:
  DeviceBuffer(DeviceType device, std::size_t bytes);

  // The default stream's work is done before either returns.
  void copy_from_host(const void* host, std::size_t bytes);
  void copy_to_host(void* host, std::size_t bytes) const;

  template <typename T = void>
  T* data() const {
    return static_cast<T*>(memory_.get());
  }
  // All of it, as elements of T.
  template <typename T = std::byte>
  std::span<T> span() const {
    return {data<T>(), bytes_ / sizeof(T)};
  }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Release {
    DeviceType device;
    void operator()(void* memory) const noexcept;
  };
  std::unique_ptr<void, Release> memory_;
  std::size_t bytes_;
};

}  // namespace steelyard::kernels
