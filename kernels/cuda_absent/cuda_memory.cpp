// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/cuda/cuda_memory.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

bool cuda_is_available() { return false; }
void* cuda_allocate(std::size_t) { cuda_is_absent(); }
void cuda_release(void*) noexcept {}
void cuda_copy_to_device(void*, const void*, std::size_t) { cuda_is_absent(); }
void cuda_copy_to_host(void*, const void*, std::size_t) { cuda_is_absent(); }

}  // namespace steelyard::kernels
