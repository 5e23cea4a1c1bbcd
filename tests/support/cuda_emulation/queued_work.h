// The emulated stream: work runs when it is queued, or is recorded for a graph.
#pragma once

#include <functional>
#include <vector>

namespace steelyard::emulation {

using Work = std::vector<std::function<void()>>;

// Runs `work` with device memory accessible, or records it.
void queue_work(std::function<void()> work);

void begin_recording();
// What was queued since, and ends the recording.
Work end_recording();
// Throws std::logic_error while recording: a captured step must not wait for the device.
void require_not_recording(const char* what);

}  // namespace steelyard::emulation
