// The CUDA runtime's memory, behind DeviceBuffer; kernels/cuda_absent has the same without CUDA.
#pragma once

#include <cstddef>

namespace steelyard::kernels {

bool cuda_is_available();
// Null for 0 bytes. Throw std::runtime_error with CUDA's words.
void* cuda_allocate(std::size_t bytes);
void cuda_release(void* memory) noexcept;
void cuda_copy_to_device(void* to, const void* from, std::size_t bytes);
void cuda_copy_to_host(void* to, const void* from, std::size_t bytes);

}  // namespace steelyard::kernels
