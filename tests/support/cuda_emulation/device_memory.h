// The emulated GPU's memory: pages that only kernels and copies can touch, so that code of the host
// which follows a device pointer crashes, as it does with a GPU.
#pragma once

#include <cstddef>

namespace steelyard::emulation {

// Makes device memory accessible while one lives; they nest.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

// Null where there is no more. Filled with the options' poison: a GPU's memory holds what was there
// before.
void* allocate_device_memory(std::size_t bytes);
// For allocations of the same number of pages to take again: every kernel costs time by the pages
// that have ever been in use. Null is nothing.
void release_device_memory(void* memory) noexcept;

// The allocation that a pointer lies in, and how many of its bytes lie before and after it; null
// and 0 for one that lies in none.
struct Place {
  const void* allocation = nullptr;
  std::size_t before = 0, after = 0;
};
Place place_of(const void* pointer);

// Throws std::logic_error for a pointer to the host's memory, once device memory is in use.
void require_device_pointer(const void* pointer, int parameter);

}  // namespace steelyard::emulation
