// The one way in which kernels are launched, and what they share about the device.
//
// Tests replace this header by one that runs the same kernels on the host
// (tests/support/cuda_emulation), so it is all that kernel files include of CUDA.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace steelyard::kernels::cuda {

inline void check(cudaError_t error, const char* expression, const char* file, int line) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + expression +
                           ": " + cudaGetErrorString(error));
}

// Grid and block have one dimension; all shared memory is dynamic.
struct LaunchShape {
  std::int64_t blocks;
  int threads;
  std::size_t shared_bytes = 0;
};

// Devices give a kernel more than 48 KiB only if it asks.
template <typename... Parameters>
void allow_shared_memory(void (*kernel)(Parameters...), std::size_t bytes) {
  if (bytes <= std::size_t{48} << 10) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "cudaFuncSetAttribute", __FILE__, __LINE__);
}

// Starts kernel(arguments...) on the stream; a grid of no blocks starts nothing. Throws
// std::runtime_error where the launch is refused or the grid has more blocks than CUDA counts.
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
            Arguments&&... arguments) {
  if (shape.blocks == 0) return;
  if (shape.blocks > INT32_MAX) {
    throw std::runtime_error("[cuda] expected at most 2,147,483,647 blocks of a grid, got " +
                             std::to_string(shape.blocks));
  }
  allow_shared_memory(kernel, shape.shared_bytes);
  kernel<<<static_cast<unsigned>(shape.blocks), static_cast<unsigned>(shape.threads),
           shape.shared_bytes, stream>>>(std::forward<Arguments>(arguments)...);
  check(cudaGetLastError(), "kernel launch", __FILE__, __LINE__);
}

// Blocks of the kernel that the current device runs at once.
template <typename... Parameters>
std::int64_t resident_blocks(void (*kernel)(Parameters...), int threads,
                             std::size_t shared_bytes = 0) {
  allow_shared_memory(kernel, shared_bytes);
  int device = 0, multiprocessors = 0, blocks = 0;
  check(cudaGetDevice(&device), "cudaGetDevice", __FILE__, __LINE__);
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute", __FILE__, __LINE__);
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor", __FILE__, __LINE__);
  return std::int64_t{multiprocessors} * blocks;
}

// The block's dynamic shared memory.
template <typename T>
__device__ inline T* shared_memory() {
  extern __shared__ __align__(1024) unsigned char bytes[];
  return reinterpret_cast<T*>(bytes);
}

// Waits for the stream, then copies.
inline void copy_to_host(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync",
        __FILE__, __LINE__);
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize", __FILE__, __LINE__);
}

// Throws std::runtime_error unless a device can be used.
inline void require_device() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return;
  throw std::runtime_error(std::string("[cuda] no CUDA device: ") +
                           (error == cudaSuccess ? "none found" : cudaGetErrorString(error)));
}

}  // namespace steelyard::kernels::cuda
