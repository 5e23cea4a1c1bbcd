#include "kernels/cuda/send.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/grid.h"

namespace steelyard::kernels::cuda {
namespace {

// Of the 4 KiB of parameters that every device takes.
struct Packet {
  static constexpr std::size_t kMost = 480;
  std::uint64_t words[kMost] = {};
};

__global__ void send_kernel(Packet packet, std::int64_t bytes, unsigned char* to) {
  for (std::int64_t i = threadIdx.x; i * 8 < bytes; i += blockDim.x) {
    const std::uint64_t word = packet.words[i];
    const std::int64_t left = bytes - i * 8;
    if (left >= 8) {
      reinterpret_cast<std::uint64_t*>(to)[i] = word;
    } else {
      for (std::int64_t j = 0; j < left; ++j) {
        to[i * 8 + j] = static_cast<unsigned char>(word >> (8 * j));
      }
    }
  }
}

}  // namespace

void send_to_device(const CudaQueue& queue, void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t kPacketBytes = sizeof(Packet);
  for (std::size_t begin = 0; begin < bytes; begin += kPacketBytes) {
    const std::size_t part = std::min(bytes - begin, kPacketBytes);
    Packet packet;
    std::memcpy(packet.words, static_cast<const unsigned char*>(from) + begin, part);
    launch(send_kernel, {.blocks = 1, .threads = kThreads}, stream_of(queue), packet,
           static_cast<std::int64_t>(part), static_cast<unsigned char*>(to) + begin);
  }
}

}  // namespace steelyard::kernels::cuda
