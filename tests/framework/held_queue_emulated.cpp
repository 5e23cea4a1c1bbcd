#include "framework/on_device.h"
#include "tests/framework/held_queue.h"
#include "tests/support/cuda_emulation/queued_work.h"

namespace steelyard::testing {

void HeldQueue::hold() { passed_ = true; }

HeldQueue::HeldQueue(Device device) : device_(device) {
  emulation::queue_work(cuda_queue(device).stream, [this] { hold(); });
}

HeldQueue::~HeldQueue() {
  released_ = true;
  emulation::synchronize(cuda_queue(device_).stream);
}

}  // namespace steelyard::testing
