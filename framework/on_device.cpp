#include "framework/on_device.h"

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

#include "framework/caching_allocator.h"
#include "kernels/cuda/cuda_memory.h"

namespace steelyard {
namespace {

kernels::CudaQueue& queue_of(Device device) {
  static std::mutex mutex;
  static auto* queues =
      new std::map<int, kernels::CudaQueue>();  // as the allocators, never destroyed
  kernels::cuda_select_device(device.index);    // others may have selected another one
  const std::lock_guard lock(mutex);
  const auto found = queues->find(device.index);
  if (found != queues->end()) return found->second;
  kernels::CudaQueue queue;
  queue.stream = kernels::cuda_new_stream();
  queue.scratch = &allocator(device);
  return (*queues)[device.index] = queue;
}

}  // namespace

const kernels::CudaQueue& cuda_queue(Device device) { return queue_of(device); }

void set_matmul_precision(Device device, std::string_view precision) {
  static const std::map<std::string_view, kernels::MatmulPrecision> kPrecisions{
      {"float32", kernels::MatmulPrecision::kFloat32},
      {"tf32", kernels::MatmulPrecision::kTf32},
      {"bf16", kernels::MatmulPrecision::kBf16}};
  const auto found = kPrecisions.find(precision);
  if (found == kPrecisions.end()) {
    throw std::invalid_argument("[matmul] expected float32, tf32 or bf16, got " +
                                std::string(precision));
  }
  queue_of(device).precision = found->second;
}

}  // namespace steelyard
