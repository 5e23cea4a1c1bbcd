#include "tests/support/cuda_emulation/queued_work.h"

#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/support/cuda_emulation/device_memory.h"
#include "tests/support/cuda_emulation/emulation.h"

namespace steelyard::emulation {
namespace {

struct Stream {
  std::deque<std::function<void()>> left;
  std::int64_t done = 0;

  std::int64_t queued() const { return done + static_cast<std::int64_t>(left.size()); }
};

struct Recording {
  void* stream;
  Work work;
};

struct Streams {
  std::recursive_mutex mutex;
  std::map<void*, Stream> all;
  std::optional<Recording> recording;
  std::exception_ptr error;  // of work that ran where nothing may be thrown
};

Streams& streams() {
  static auto* streams = new Streams();
  return *streams;
}

// Runs the stream's work until `count` pieces of it are done. Waiting for another stream is a piece
// of work, so that this may run others' on the way.
void run_until(void* stream, std::int64_t count) {
  Stream& s = streams().all[stream];
  if (s.done >= count || s.left.empty()) return;
  const DeviceAccess access;
  while (s.done < count && !s.left.empty()) {
    const std::function<void()> work = std::move(s.left.front());
    s.left.pop_front();
    ++s.done;
    require_alive();
    work();
    count_work();
  }
}

void require_streams_apart(void* stream, void* other) {
  const auto& recording = streams().recording;
  if (recording && (recording->stream == stream || recording->stream == other)) {
    throw std::logic_error("[emulation] waited for another stream while work is being captured");
  }
}

}  // namespace

void* new_stream() {
  const std::lock_guard lock(streams().mutex);
  auto* stream = new char();  // an address of its own
  streams().all[stream];
  return stream;
}

void release_stream(void* stream) noexcept {
  const std::lock_guard lock(streams().mutex);
  finish_all();
  streams().all.erase(stream);
  delete static_cast<char*>(stream);
}

void queue_work(void* stream, QueuedWork work) {
  const std::lock_guard lock(streams().mutex);
  require_alive();
  auto& recording = streams().recording;
  if (recording && recording->stream == stream) {
    recording->work.push_back(std::move(work));
    return;
  }
  streams().all[stream].left.push_back(std::move(work.run));
  if (!options().deferred) finish(stream);
}

void wait_for(void* stream, void* other) {
  const std::lock_guard lock(streams().mutex);
  require_streams_apart(stream, other);
  const std::int64_t count = streams().all[other].queued();
  queue_work(stream, {"wait", nullptr, [other, count] { run_until(other, count); }});
}

void finish(void* stream) {
  const std::lock_guard lock(streams().mutex);
  require_alive();
  if (streams().error) std::rethrow_exception(std::exchange(streams().error, nullptr));
  run_until(stream, streams().all[stream].queued());
}

void finish_all() noexcept {
  const std::lock_guard lock(streams().mutex);
  for (auto& [stream, of_stream] : streams().all) {
    try {
      run_until(stream, of_stream.queued());
    } catch (...) {
      streams().error = std::current_exception();
    }
  }
}

void begin_recording(void* stream) {
  require_alive();
  streams().recording = Recording{stream, {}};
}

Work end_recording() {
  Work work = std::move(streams().recording.value().work);
  streams().recording.reset();
  return work;
}

void require_not_recording(const char* what) {
  if (streams().recording) {
    throw std::logic_error(std::string("[emulation] ") + what + " while work is being captured");
  }
}

}  // namespace steelyard::emulation
