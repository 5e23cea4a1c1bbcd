// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/cuda/cuda_memory.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

bool cuda_is_available() { return false; }
int cuda_device_count() { return 0; }
std::string cuda_absence() { return "this build is without CUDA"; }
std::string cuda_device_problem(int) { return cuda_absence(); }
void cuda_select_device(int) { cuda_is_absent(); }
void* cuda_new_stream() { cuda_is_absent(); }
void cuda_release_stream(void*) noexcept {}
void cuda_synchronize(const CudaQueue&) { cuda_is_absent(); }
void cuda_wait_for(const CudaQueue&, const CudaQueue&) { cuda_is_absent(); }
void* cuda_allocate_pinned(std::size_t) { cuda_is_absent(); }
void cuda_release_pinned(void*) noexcept {}
void* cuda_allocate(std::size_t) { cuda_is_absent(); }
void cuda_release(void*) noexcept {}
void cuda_copy_to_device(const CudaQueue&, void*, const void*, std::size_t) { cuda_is_absent(); }
void cuda_copy_to_host(const CudaQueue&, void*, const void*, std::size_t) { cuda_is_absent(); }
void cuda_copy_on_device(const CudaQueue&, void*, const void*, std::size_t) { cuda_is_absent(); }

}  // namespace steelyard::kernels
