// Grids of one thread per element, and memory for what a kernel leaves to the next one.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/cuda/divisor.h"
#include "steelyard/kernels/cuda/launch.h"
#include "steelyard/kernels/cuda_queue.h"
#include "steelyard/kernels/divide.h"

namespace steelyard::kernels::cuda {

constexpr int kThreads = 256;

inline cudaStream_t stream_of(const CudaQueue& queue) {
  return static_cast<cudaStream_t>(queue.stream);
}

// The running thread's place in its grid.
__device__ inline std::int64_t element_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// Blocks that have a thread for each of n elements.
STEELYARD_HOST_DEVICE inline std::int64_t blocks_for(std::int64_t n) {
  return (n + kThreads - 1) / kThreads;
}

using kernels::divide;

// A device refuses to read or write a vector, or a word, at an address that is no multiple of its
// size.
STEELYARD_HOST_DEVICE inline bool is_aligned(const void* p, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}

// Starts kernel(n, arguments...) with a thread for each of n elements; threads from n on have
// nothing to do: a kernel begins with `if (element_index() >= n) return;`.
template <typename... Parameters, typename... Arguments>
void launch_elements(const CudaQueue& queue, void (*kernel)(std::int64_t, Parameters...),
                     std::int64_t n, Arguments&&... arguments) {
  launch(kernel, {.blocks = blocks_for(n), .threads = kThreads}, stream_of(queue), n,
         std::forward<Arguments>(arguments)...);
}

// use(i, read(i)) for i = first, first + step, ... below last, in that order; kAtOnce reads are on
// their way from memory together, at the end, too, where read() has no branches.
template <int kAtOnce, class Read, class Use>
__device__ void read_ahead(std::int64_t first, std::int64_t last, std::int64_t step,
                           const Read& read, const Use& use) {
  const auto round = [&](std::int64_t i, auto whole) {
    constexpr bool kWhole = decltype(whole)::value;
    std::remove_cvref_t<decltype(read(i))> values[kAtOnce] = {};
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      if (kWhole || i + n * step < last) values[n] = read(i + n * step);
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      if (kWhole || i + n * step < last) use(i + n * step, values[n]);
    }
  };
  std::int64_t i = first;
  for (; i + (kAtOnce - 1) * step < last; i += kAtOnce * step) round(i, std::true_type());
  if (i < last) round(i, std::false_type());
}

// `count` uninitialized T of device memory until the end of the scope.
template <typename T>
class Scratch {
 public:
  Scratch(const CudaQueue& queue, std::int64_t count)
      : source_(*queue.scratch),
        bytes_(static_cast<std::size_t>(count) * sizeof(T)),
        memory_(source_.take(bytes_)) {}
  ~Scratch() { source_.give_back(memory_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return static_cast<T*>(memory_); }

 private:
  ScratchMemory& source_;
  std::size_t bytes_;
  void* memory_;
};

}  // namespace steelyard::kernels::cuda
