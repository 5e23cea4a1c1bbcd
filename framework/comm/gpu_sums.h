// Sums of a GPU's tensors that stay on the GPUs: the same collectives above another transport.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "steelyard/framework/comm/collectives.h"
#include "steelyard/framework/tensor/device.h"
#include "steelyard/framework/tensor/tensor.h"
#include "steelyard/kernels/cuda_queue.h"

namespace steelyard::comm {

// kExact: messages between pairs and our own additions, the tree of every other backend. kFast:
// the library's own sum, whose order and bits follow the number of GPUs and their connections.
enum class GpuSums { kExact, kFast };

// Messages lie in the memory of a GPU; what is called is queued on its stream and returns.
class GpuTransport : public Transport {
 public:
  virtual const kernels::CudaQueue& queue() const = 0;
  // Adds f32 or f64 over the ranks in place, in any order.
  virtual void sum_in_any_order(void* data, std::size_t count, DType dtype) = 0;
  // An error that occurred after work was queued; empty: none. Called by any thread. Then
  // interrupt() ends what waits on the GPU.
  virtual std::string problem() = 0;
};

class GpuReducer {
 public:
  GpuReducer(std::unique_ptr<GpuTransport> transport, Device device, GpuSums sums);
  ~GpuReducer();

  Device device() const { return device_; }
  // Queues a sum of f32 and f64 over the ranks, in place, after what the device's queue holds by
  // now. Keeps the tensors until wait().
  void start(const std::vector<Tensor>& tensors);
  // Work that is queued on the device from now on runs after all sums that were started.
  void wait();
  // Ends what is queued, and every later call, where something went wrong; returns what it was.
  std::string check();
  // Called by all ranks when no sum will follow.
  void finish();

 private:
  std::unique_ptr<GpuTransport> transport_;
  Collectives collectives_;
  Device device_;
  GpuSums sums_;
  std::vector<Tensor> started_;
};

}  // namespace steelyard::comm
