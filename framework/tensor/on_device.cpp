#include "steelyard/framework/tensor/on_device.h"

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/framework/tensor/caching_allocator.h"
#include "steelyard/framework/tensor/matmul_precision_words.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/cuda/cuda_memory.h"
#include "steelyard/kernels/own_precision.h"

namespace steelyard {
namespace {

// Zeros that stay where they are for ever.
std::uint32_t* new_arrivals(const kernels::CudaQueue& queue) {
  const std::vector<std::uint32_t> zeros(kernels::CudaQueue::kArrivals, 0);
  const std::size_t bytes = zeros.size() * sizeof(zeros[0]);
  void* memory = kernels::cuda_allocate(bytes);
  if (memory == nullptr) throw std::runtime_error("out of memory on a GPU: no counters for grids");
  kernels::cuda_copy_to_device(queue, memory, zeros.data(), bytes);
  return static_cast<std::uint32_t*>(memory);
}

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
  queue.arrivals = new_arrivals(queue);
  return (*queues)[device.index] = queue;
}

kernels::MatmulPrecision& precision_of(Device device) {
  if (device.kind == Device::Kind::kCpu) return kernels::cpu_matmul_precision();
  if (auto* own = kernels::OwnMatmulPrecision::current()) return *own;
  return queue_of(device).precision;
}

kernels::MatmulPrecision parse_precision(Device device, std::string_view word) {
  const bool on_gpu = device.kind == Device::Kind::kCuda;
  for (const auto& row : kernels::kMatmulPrecisionWords) {
    const bool possible = on_gpu || row.value != kernels::MatmulPrecision::kTf32;
    if (row.word == word && possible) return row.value;
  }
  throw std::invalid_argument(
      std::string(on_gpu ? "[matmul] expected float32, tf32 or bf16, got "
                         : "[matmul] expected float32 or bf16 on the CPU, got ")
          .append(word));
}

}  // namespace

const kernels::CudaQueue& cuda_queue(Device device) {
  const kernels::CudaQueue& shared = queue_of(device);
  const kernels::MatmulPrecision* own = kernels::OwnMatmulPrecision::current();
  if (own == nullptr) return shared;
  thread_local std::map<int, kernels::CudaQueue> queues;
  kernels::CudaQueue& queue = queues[device.index];
  queue = shared;
  queue.precision = *own;
  return queue;
}

MatmulPrecisionGuard::MatmulPrecisionGuard(Device device, std::string_view precision)
    : precision_(precision_of(device)),
      previous_(std::exchange(precision_, parse_precision(device, precision))) {}

MatmulPrecisionGuard::~MatmulPrecisionGuard() { precision_ = previous_; }

}  // namespace steelyard
