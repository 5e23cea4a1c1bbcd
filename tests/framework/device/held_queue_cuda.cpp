#include <cuda_runtime.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "steelyard/framework/tensor/on_device.h"
#include "tests/framework/device/held_queue.h"

namespace steelyard::testing {
namespace {

cudaStream_t stream_of(Device device) {
  return static_cast<cudaStream_t>(cuda_queue(device).stream);
}

void CUDART_CB hold_queue(void* held) { static_cast<HeldQueue*>(held)->hold(); }

}  // namespace

void HeldQueue::hold() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!released_ && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  passed_ = true;
}

HeldQueue::HeldQueue(Device device) : device_(device) {
  if (cudaLaunchHostFunc(stream_of(device), hold_queue, this) != cudaSuccess) {
    throw std::runtime_error("cudaLaunchHostFunc failed");
  }
}

HeldQueue::~HeldQueue() {
  released_ = true;
  cudaStreamSynchronize(stream_of(device_));
}

}  // namespace steelyard::testing
