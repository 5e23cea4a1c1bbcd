#include "kernels/cuda/cuda_memory.h"

#include "kernels/cuda/launch.h"

namespace steelyard::kernels {

bool cuda_is_available() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

void* cuda_allocate(std::size_t bytes) {
  cuda::require_device();
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  const std::string what = "cudaMalloc of " + std::to_string(bytes) + " bytes";
  cuda::check(cudaMalloc(&memory, bytes), what.c_str(), __FILE__, __LINE__);
  return memory;
}

void cuda_release(void* memory) noexcept { cudaFree(memory); }

void cuda_copy_to_device(void* to, const void* from, std::size_t bytes) {
  cuda::check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy", __FILE__,
              __LINE__);
}

void cuda_copy_to_host(void* to, const void* from, std::size_t bytes) {
  cuda::copy_to_host(to, from, bytes, nullptr);
}

}  // namespace steelyard::kernels
