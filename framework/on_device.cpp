#include "framework/on_device.h"

#include <map>
#include <mutex>

#include "framework/caching_allocator.h"
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

}  // namespace

const kernels::CudaQueue& cuda_queue(Device device) { return queue_of(device); }

void set_matmul_precision(Device device, kernels::MatmulPrecision precision) {
  queue_of(device).precision = precision;
}

}  // namespace steelyard
