// Work that was queued once and is queued again as a whole; kernels/cuda_absent has the same
// without CUDA, the tests' emulation has it on the host. Functions throw std::runtime_error with
// CUDA's words.
#pragma once

#include <cstddef>

#include "steelyard/kernels/cuda_queue.h"

namespace steelyard::kernels {

// A recorded sequence of kernels and copies, with the pointers and numbers that they were given.
class CudaGraph {
 public:
  // Records what `queue_work` queues on the queue; nothing of it is run. It must not wait for
  // the device.
  template <typename F>
  CudaGraph(const CudaQueue& queue, F&& queue_work) {
    begin(queue);
    try {
      queue_work();
    } catch (...) {
      abandon(queue);
      throw;
    }
    end(queue);
  }
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch(const CudaQueue& queue) const;
  // Kernels, copies and the like.
  std::size_t nodes() const { return nodes_; }

 private:
  static void begin(const CudaQueue& queue);
  static void abandon(const CudaQueue& queue) noexcept;
  void end(const CudaQueue& queue);

  [[maybe_unused]] void* graph_ = nullptr;
  std::size_t nodes_ = 0;
};

}  // namespace steelyard::kernels
