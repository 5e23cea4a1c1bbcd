// The emulated streams: work runs when it is queued or, where the options defer it, when something
// waits for it; or it is recorded for a graph.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace steelyard::emulation {

// Memory of the device that work reads or writes; 0 bytes: to the end of its allocation.
struct WorkMemory {
  const void* begin;
  std::size_t bytes = 0;
};

// One node of a graph: a kernel, or what `what` says.
struct QueuedWork {
  const char* what = "";
  const void* kernel = nullptr;  // its function, null for other work
  std::function<void()> run;
  std::vector<WorkMemory> memory = {};
};
using Work = std::vector<QueuedWork>;

// A stream that no other waits for. Null is the default stream, which is like any other here.
void* new_stream();
// Finishes it first.
void release_stream(void* stream) noexcept;

// Runs the work with device memory accessible, now or later, or records it.
void queue_work(void* stream, QueuedWork work);
// Work queued on `stream` from now on runs when what `other` holds by now is done.
void wait_for(void* stream, void* other);
// Runs what is left. Throws what that throws.
void finish(void* stream);
// Every stream, as giving memory back to the driver does; an error shows at the next finish().
void finish_all() noexcept;

void begin_recording(void* stream);
// What was queued on that stream since, and ends the recording.
Work end_recording();
// Throws std::logic_error while recording: a captured step must not wait for the device.
void require_not_recording(const char* what);

}  // namespace steelyard::emulation
