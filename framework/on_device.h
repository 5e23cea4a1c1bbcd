// How an operation runs its kernels where its tensors are.
#pragma once

#include <string_view>
#include <utility>

#include "framework/device.h"
#include "kernels/cuda_queue.h"

namespace steelyard {

// The compute stream of a GPU, with scratch memory of its allocator. Everything that the engine
// does on a GPU is queued here, in order.
const kernels::CudaQueue& cuda_queue(Device device);
// How that GPU multiplies float matrices from now on: "float32", "tf32" or "bf16". Throws
// std::invalid_argument on other words.
void set_matmul_precision(Device device, std::string_view precision);

// Calls run() for the CPU, run(queue) for a GPU: a kernel's name stands for both.
//   on_device(y.device(), [&](auto&... queue) { kernels::add<T>(queue..., n, a, b, y); });
template <typename F>
decltype(auto) on_device(Device device, F&& run) {
  if (device.kind == Device::Kind::kCpu) return std::forward<F>(run)();
  return std::forward<F>(run)(cuda_queue(device));
}

}  // namespace steelyard
