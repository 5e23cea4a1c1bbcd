// kernels/cuda/cuda_memory.h for the emulated GPU: one device, work is done when it is queued.
#include "kernels/cuda/cuda_memory.h"

#include <cstdlib>
#include <cstring>

#include "tests/support/cuda_emulation/device_memory.h"
#include "tests/support/cuda_emulation/queued_work.h"

namespace steelyard::kernels {

bool cuda_is_available() { return true; }
int cuda_device_count() { return 1; }
std::string cuda_absence() { return ""; }
void cuda_select_device(int) {}
void* cuda_new_stream() { return nullptr; }
void cuda_release_stream(void*) noexcept {}
void cuda_synchronize(const CudaQueue&) { emulation::require_not_recording("waited"); }
void cuda_wait_for(const CudaQueue&, const CudaQueue&) {}

void* cuda_allocate(std::size_t bytes) {
  return bytes == 0 ? nullptr : emulation::allocate_device_memory(bytes);
}
void cuda_release(void* memory) noexcept { emulation::release_device_memory(memory); }
void* cuda_allocate_pinned(std::size_t bytes) { return std::malloc(bytes); }
void cuda_release_pinned(void* memory) noexcept { std::free(memory); }

void cuda_copy_to_device(const CudaQueue&, void* to, const void* from, std::size_t bytes) {
  emulation::require_not_recording("copied from the host");
  emulation::queue_work([=] { std::memcpy(to, from, bytes); });
}
void cuda_copy_to_host(const CudaQueue&, void* to, const void* from, std::size_t bytes) {
  emulation::require_not_recording("copied to the host");
  emulation::queue_work([=] { std::memcpy(to, from, bytes); });
}
void cuda_copy_on_device(const CudaQueue&, void* to, const void* from, std::size_t bytes) {
  emulation::queue_work([=] { std::memmove(to, from, bytes); });
}

}  // namespace steelyard::kernels
