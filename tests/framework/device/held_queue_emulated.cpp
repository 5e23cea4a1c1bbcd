#include "steelyard/framework/tensor/on_device.h"
#include "tests/framework/device/held_queue.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/cuda_emulation/queued_work.h"

namespace steelyard::testing {

void HeldQueue::hold() { passed_ = true; }

// Work of all streams is late while this one is held.
HeldQueue::HeldQueue(Device device) : device_(device) {
  emulation::Options options = emulation::options();
  options.deferred = true;
  emulation_ = std::make_shared<emulation::ScopedOptions>(options);
  emulation::queue_work(cuda_queue(device).stream, {"hold", nullptr, [this] { hold(); }});
}

HeldQueue::~HeldQueue() {
  released_ = true;
  emulation::finish(cuda_queue(device_).stream);
}

}  // namespace steelyard::testing
