#include "steelyard/framework/tensor/captured_work.h"

#include <exception>

#include "steelyard/framework/tensor/caching_allocator.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/cuda/cuda_memory.h"

namespace steelyard {
namespace {

thread_local bool recording = false;

class PrivateMemory {
 public:
  explicit PrivateMemory(Device device) : allocator_(allocator(device)) {
    allocator_.begin_private();
    recording = true;
  }
  ~PrivateMemory() {
    recording = false;
    allocator_.end_private();
  }
  PrivateMemory(const PrivateMemory&) = delete;
  PrivateMemory& operator=(const PrivateMemory&) = delete;

 private:
  CachingAllocator& allocator_;
};

}  // namespace

CapturedWork::CapturedWork(Device device, const std::function<void()>& queue_work)
    : device_(device) {
  try {
    const PrivateMemory memory(device);
    graph_.emplace(cuda_queue(device), queue_work);
  } catch (...) {
    allocator(device).release_private();
    throw;
  }
}

CapturedWork::~CapturedWork() {
  try {
    kernels::cuda_synchronize(cuda_queue(device_));  // the device may still be at work on it
  } catch (const std::exception&) {
    // A failed GPU stays failed: the exception that is under way, or the next call, says so.
  }
  graph_.reset();
  allocator(device_).release_private();
}

bool is_recording_work() { return recording; }

void CapturedWork::run() const { graph_->launch(cuda_queue(device_)); }

}  // namespace steelyard
