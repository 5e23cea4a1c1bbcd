// Work of a GPU, recorded once and run again: a training step without the host's part.
#pragma once

#include <functional>
#include <optional>

#include "steelyard/framework/tensor/device.h"
#include "steelyard/kernels/cuda/cuda_graph.h"

namespace steelyard {

// The work that `queue_work` queues on the device's compute stream, with the memory that it took.
// Tensors that it read or wrote must stay where they are. One per device at a time.
class CapturedWork {
 public:
  // Records; nothing is run. Throws what queue_work throws, and std::runtime_error where work
  // cannot be recorded.
  CapturedWork(Device device, const std::function<void()>& queue_work);
  ~CapturedWork();
  CapturedWork(const CapturedWork&) = delete;
  CapturedWork& operator=(const CapturedWork&) = delete;

  // Queues all of it again.
  void run() const;
  // Kernels, copies and the like that it queues.
  std::size_t nodes() const { return graph_->nodes(); }

 private:
  Device device_;
  std::optional<kernels::CudaGraph> graph_;
};

// Whether this thread is recording: then it may not wait for the device.
bool is_recording_work();

}  // namespace steelyard
