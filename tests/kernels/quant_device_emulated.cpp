#include <cstdlib>
#include <cstring>

#include "tests/kernels/quant_device.h"
#include "tests/support/cuda_emulation/emulation.h"

namespace steelyard::kernels::test {

bool is_emulated() { return true; }
DeviceType device() { return DeviceType::kCuda; }
void* allocate(std::size_t bytes) { return std::malloc(bytes); }
void release(void* memory) { std::free(memory); }
void copy_to_device(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void copy_to_host(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void for_each_order(const std::function<void()>& body) { emulation::for_each_order(body); }

}  // namespace steelyard::kernels::test
