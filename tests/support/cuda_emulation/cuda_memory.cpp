// kernels/cuda/cuda_memory.h for the emulated GPU: one device, work is done when it is queued.
#include "kernels/cuda/cuda_memory.h"

#include <atomic>
#include <cstring>

#include "tests/support/cuda_emulation/copies.h"
#include "tests/support/cuda_emulation/device_memory.h"

namespace steelyard::emulation {
namespace {
std::atomic<std::int64_t> copies{0};
}  // namespace

std::int64_t copies_to_host() { return copies; }

}  // namespace steelyard::emulation

namespace steelyard::kernels {

bool cuda_is_available() { return true; }
int cuda_device_count() { return 1; }
std::string cuda_absence() { return ""; }
void cuda_select_device(int) {}
void* cuda_new_stream() { return nullptr; }
void cuda_synchronize(const CudaQueue&) {}
void* cuda_allocate(std::size_t bytes) {
  return bytes == 0 ? nullptr : emulation::allocate_device_memory(bytes);
}
void cuda_release(void*) noexcept {}
void cuda_copy_to_device(const CudaQueue&, void* to, const void* from, std::size_t bytes) {
  const emulation::DeviceAccess access;
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void cuda_copy_to_host(const CudaQueue& queue, void* to, const void* from, std::size_t bytes) {
  ++emulation::copies;
  cuda_copy_to_device(queue, to, from, bytes);
}
void cuda_copy_on_device(const CudaQueue& queue, void* to, const void* from, std::size_t bytes) {
  cuda_copy_to_device(queue, to, from, bytes);
}

}  // namespace steelyard::kernels
