// The CUDA runtime's devices, streams and memory; kernels/cuda_absent has the same without CUDA,
// the tests' emulation has it on the host. Functions throw std::runtime_error with CUDA's words.
#pragma once

#include <cstddef>
#include <string>

#include "steelyard/kernels/cuda_queue.h"

namespace steelyard::kernels {

bool cuda_is_available();
// 0 where there is no driver.
int cuda_device_count();
// Why there is none: CUDA's words, or that this build is without CUDA.
std::string cuda_absence();
// Why the device cannot run this build's kernels, in CUDA's words; empty where it can. Selects it.
std::string cuda_device_problem(int index);
// What tells GPUs apart, of all machines.
struct CudaIdentity {
  std::string model;  // "NVIDIA H100 PCIe"
  std::string uuid;   // 32 hexadecimal digits
};
CudaIdentity cuda_identity(int index);
// The device of the calling thread's next calls.
void cuda_select_device(int index);
int cuda_selected_device();
// A stream that does not wait for the default one.
void* cuda_new_stream();
void cuda_release_stream(void* stream) noexcept;
// Returns when all work on the stream is done.
void cuda_synchronize(const CudaQueue& queue);

// What is queued on `queue` from now on waits for what is queued on `other` by now.
void cuda_wait_for(const CudaQueue& queue, const CudaQueue& other);

// Null for 0 bytes and where memory is used up.
void* cuda_allocate(std::size_t bytes);
void cuda_release(void* memory) noexcept;
// Memory of the host that a GPU copies from while the host goes on; null where there is no more.
void* cuda_allocate_pinned(std::size_t bytes);
void cuda_release_pinned(void* memory) noexcept;
// In the stream's order. To the device: not while the stream is captured; memory that is not pinned
// was read when it returns, and few bytes (kernels/cuda/small_copy.h) wait for nothing. To the
// host: returns when the bytes are there.
void cuda_copy_to_device(const CudaQueue& queue, void* to, const void* from, std::size_t bytes);
void cuda_copy_to_host(const CudaQueue& queue, void* to, const void* from, std::size_t bytes);
void cuda_copy_on_device(const CudaQueue& queue, void* to, const void* from, std::size_t bytes);

}  // namespace steelyard::kernels
