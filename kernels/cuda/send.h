// Few bytes of the host for a GPU: they travel as parameters of a kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda_queue.h"

namespace steelyard::kernels::cuda {

// Whether a copy to the device is worth it: 18 launches at most, of whole words.
inline bool is_sent(const void* to, std::size_t bytes) {
  constexpr std::size_t kMostBytes = std::size_t{64} << 10;
  return bytes <= kMostBytes && reinterpret_cast<std::uintptr_t>(to) % 8 == 0;
}

// Copies in the stream's order. The host's bytes were read when this returns, and nothing waits for
// the device, as a copy from memory that is not pinned may. For what is_sent().
void send_to_device(const CudaQueue& queue, void* to, const void* from, std::size_t bytes);

}  // namespace steelyard::kernels::cuda
