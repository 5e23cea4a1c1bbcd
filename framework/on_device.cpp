#include "framework/on_device.h"

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "framework/caching_allocator.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_memory.h"

namespace steelyard {
namespace {

kernels::CudaQueue& queue_of(Device device) {
  static std::mutex mutex;
  static auto* queues =
      new std::map<int, kernels::CudaQueue>();  // as the allocators, never destroyed
  thread_local int selected = -1;
  if (selected != device.index) {
    kernels::cuda_select_device(device.index);
    selected = device.index;
  }
  const std::lock_guard lock(mutex);
  const auto found = queues->find(device.index);
  if (found != queues->end()) return found->second;
  kernels::CudaQueue queue;
  queue.stream = kernels::cuda_new_stream();
  queue.scratch = &allocator(device);
  return (*queues)[device.index] = queue;
}

kernels::MatmulPrecision& precision_of(Device device) {
  if (device.kind == Device::Kind::kCpu) return kernels::cpu_matmul_precision();
  return queue_of(device).precision;
}

kernels::MatmulPrecision parse_precision(Device device, std::string_view word) {
  if (word == "float32") return kernels::MatmulPrecision::kFloat32;
  if (word == "bf16") return kernels::MatmulPrecision::kBf16;
  const bool on_gpu = device.kind == Device::Kind::kCuda;
  if (word == "tf32" && on_gpu) return kernels::MatmulPrecision::kTf32;
  throw std::invalid_argument(
      std::string(on_gpu ? "[matmul] expected float32, tf32 or bf16, got "
                         : "[matmul] expected float32 or bf16 on the CPU, got ")
          .append(word));
}

}  // namespace

const kernels::CudaQueue& cuda_queue(Device device) { return queue_of(device); }

MatmulPrecisionGuard::MatmulPrecisionGuard(Device device, std::string_view precision)
    : precision_(precision_of(device)),
      previous_(std::exchange(precision_, parse_precision(device, precision))) {}

MatmulPrecisionGuard::~MatmulPrecisionGuard() { precision_ = previous_; }

}  // namespace steelyard
