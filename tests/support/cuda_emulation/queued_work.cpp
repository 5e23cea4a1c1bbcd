#include "tests/support/cuda_emulation/queued_work.h"

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/support/cuda_emulation/device_memory.h"

namespace steelyard::emulation {
namespace {

std::optional<Work> recorded;

}  // namespace

void queue_work(std::function<void()> work) {
  if (recorded) {
    recorded->push_back(std::move(work));
    return;
  }
  const DeviceAccess access;
  work();
}

void begin_recording() { recorded.emplace(); }

Work end_recording() {
  Work work = std::move(recorded).value();
  recorded.reset();
  return work;
}

void require_not_recording(const char* what) {
  if (recorded) {
    throw std::logic_error(std::string("[emulation] ") + what + " while work is being captured");
  }
}

}  // namespace steelyard::emulation
