// Handles of CUDA's libraries, one for each stream of each GPU.
#pragma once

#include <map>
#include <mutex>
#include <utility>

#include "steelyard/kernels/cuda/grid.h"

namespace steelyard::kernels::cuda {

// Made at their first use by make(queue). Never destroyed: the driver may be gone when a program
// ends.
template <typename Handle>
class StreamHandles {
 public:
  explicit StreamHandles(Handle (*make)(const CudaQueue&)) : make_(make) {}

  // use(handle) for the queue's stream on the current device, by one thread at a time.
  template <typename Use>
  void with(const CudaQueue& queue, Use&& use) {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice", __FILE__, __LINE__);
    const cudaStream_t stream = stream_of(queue);
    const std::lock_guard lock(mutex_);
    auto found = handles_.find({device, stream});
    if (found == handles_.end()) found = handles_.emplace(Key{device, stream}, make_(queue)).first;
    use(found->second);
  }

 private:
  using Key = std::pair<int, cudaStream_t>;

  Handle (*make_)(const CudaQueue&);
  std::mutex mutex_;
  std::map<Key, Handle> handles_;
};

}  // namespace steelyard::kernels::cuda
