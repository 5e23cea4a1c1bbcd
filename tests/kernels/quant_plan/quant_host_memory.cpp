// Host memory for the devices that run on the host: the CPU and the emulated GPU. Exactly as large
// as asked, so that AddressSanitizer sees what lies beyond.
#include <cstdlib>
#include <cstring>

#include "tests/kernels/quant_plan/quant_device.h"

namespace steelyard::kernels::test {

void* allocate(std::size_t bytes) { return std::malloc(bytes); }
void release(void* memory) { std::free(memory); }
void copy_to_device(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void copy_to_host(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace steelyard::kernels::test
