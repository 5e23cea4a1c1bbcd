// The emulated streams: work runs as late as CUDA may run it, or is recorded for a graph.
#pragma once

#include <functional>
#include <vector>

namespace steelyard::emulation {

using Work = std::vector<std::function<void()>>;

// A stream that does not wait for the default one (null), whose work runs when it is queued. Work
// of other streams runs when the host waits for it, or when other work that must come after it is
// to run: what relies on more than streams and events promise reads what is not there yet.
void* new_stream();
void release_stream(void* stream) noexcept;

// Queues `work`, which runs with device memory accessible, or records it.
void queue_work(void* stream, std::function<void()> work);
// What is queued on `stream` from now on comes after what is queued on `other` by now.
void wait_for(void* stream, void* other);
// Runs everything that is queued. Throws what the work throws.
void synchronize(void* stream);
// All streams, as giving memory back to the driver does; an error shows at the next synchronize().
void synchronize_all() noexcept;

// Records what is queued on `stream` from now on.
void begin_recording(void* stream);
// What was queued since, and ends the recording.
Work end_recording();
// Throws std::logic_error while recording: a captured step must not wait for the device.
void require_not_recording(const char* what);

}  // namespace steelyard::emulation
