// A GPU's memory, or the emulated GPU's.
#include "steelyard/kernels/cuda/cuda_memory.h"
#include "tests/kernels/quant_plan/quant_device.h"

namespace steelyard::kernels::test {

void* allocate(std::size_t bytes) { return cuda_allocate(bytes); }
void release(void* memory) { cuda_release(memory); }
void copy_to_device(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) cuda_copy_to_device({}, to, from, bytes);
}
void copy_to_host(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) cuda_copy_to_host({}, to, from, bytes);
}

}  // namespace steelyard::kernels::test
