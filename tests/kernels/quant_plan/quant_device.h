// Memory that a plan's device can use: host memory, or a GPU's where the tests run on one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "steelyard/kernels/quant_plan/quant_plan.h"

namespace steelyard::kernels::test {

// The device that this test program is for, and its memory (quant_device_*.cpp).
DeviceType device();
void* allocate(std::size_t bytes);
void release(void* memory);
void copy_to_device(void* to, const void* from, std::size_t bytes);
void copy_to_host(void* to, const void* from, std::size_t bytes);
// True where kernels of a GPU run on the host: a run costs more, and the CPU can read the memory.
bool is_emulated();
// Calls body once for each way in which the device may order its work.
void for_each_order(const std::function<void()>& body);

// A host array's twin on the device, of exactly its size.
class OnDevice {
 public:
  explicit OnDevice(const std::vector<std::uint8_t>& host) : OnDevice(host.data(), host.size()) {}
  OnDevice(const void* host, std::size_t bytes) : memory_(allocate(bytes)), bytes_(bytes) {
    copy_to_device(memory_, host, bytes);
  }
  template <typename T>
  static OnDevice of(const std::vector<T>& host) {
    return OnDevice(host.data(), host.size() * sizeof(T));
  }
  OnDevice(OnDevice&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_) {}
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  OnDevice& operator=(OnDevice&&) = delete;
  ~OnDevice() { release(memory_); }

  template <typename T = void>
  T* get() const {
    return static_cast<T*>(memory_);
  }
  // From element `first` of T on: `count` elements, or all. Bytes where the plan chooses the type.
  template <typename T = std::byte>
  std::span<T> span(std::size_t first = 0, std::size_t count = std::dynamic_extent) const {
    return std::span<T>(get<T>(), bytes_ / sizeof(T)).subspan(first, count);
  }
  template <typename T = std::uint8_t>
  std::vector<T> host() const {
    std::vector<T> values(bytes_ / sizeof(T));
    copy_to_host(values.data(), memory_, bytes_);
    return values;
  }

 private:
  void* memory_;
  std::size_t bytes_;
};

}  // namespace steelyard::kernels::test
