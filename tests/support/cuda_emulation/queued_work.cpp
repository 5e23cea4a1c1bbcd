#include "tests/support/cuda_emulation/queued_work.h"

#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/support/cuda_emulation/device_memory.h"
#include "tests/support/cuda_emulation/emulation.h"

namespace steelyard::emulation {
namespace {

struct Stream;

// Work, or a wait until `other` has done so much.
struct Item {
  std::function<void()> work;
  Stream* other = nullptr;
  std::int64_t until = 0;
};

struct Stream {
  std::deque<Item> items;
  std::int64_t done = 0;
  std::int64_t queued() const { return done + static_cast<std::int64_t>(items.size()); }
};

struct Recording {
  void* stream;
  Work work;
};

std::optional<Recording> recording;
std::exception_ptr late_error;

std::set<Stream*>& streams() {
  static auto* all = new std::set<Stream*>();
  return *all;
}

void run(const std::function<void()>& work) {
  require_alive();
  const DeviceAccess access;
  work();
  count_work();
}

void run_until(Stream& stream, std::int64_t position) {
  while (stream.done < position) {
    const Item item = std::move(stream.items.front());
    stream.items.pop_front();
    ++stream.done;
    if (item.other != nullptr) {
      run_until(*item.other, item.until);
    } else {
      run(item.work);
    }
  }
}

}  // namespace

void* new_stream() { return *streams().insert(new Stream()).first; }

void release_stream(void* stream) noexcept {
  synchronize_all();
  auto* released = static_cast<Stream*>(stream);
  streams().erase(released);
  delete released;
}

void queue_work(void* stream, std::function<void()> work) {
  require_alive();
  if (recording && recording->stream == stream) {
    recording->work.push_back(std::move(work));
  } else if (stream == nullptr) {
    run(work);
  } else {
    static_cast<Stream*>(stream)->items.push_back({std::move(work)});
  }
}

void wait_for(void* stream, void* other) {
  require_alive();
  require_not_recording("waited for another stream");
  if (other == nullptr) return;
  auto* awaited = static_cast<Stream*>(other);
  if (stream == nullptr) return run_until(*awaited, awaited->queued());
  static_cast<Stream*>(stream)->items.push_back({{}, awaited, awaited->queued()});
}

void synchronize(void* stream) {
  require_alive();
  require_not_recording("waited");
  if (late_error) std::rethrow_exception(std::exchange(late_error, nullptr));
  if (stream == nullptr) return;
  auto* awaited = static_cast<Stream*>(stream);
  const DeviceAccess access;
  run_until(*awaited, awaited->queued());
}

void synchronize_all() noexcept {
  for (Stream* stream : streams()) {
    try {
      const DeviceAccess access;
      run_until(*stream, stream->queued());
    } catch (...) {
      late_error = std::current_exception();
    }
  }
}

void begin_recording(void* stream) {
  require_alive();
  recording = Recording{stream, {}};
}

Work end_recording() {
  Work work = std::move(recording.value().work);
  recording.reset();
  return work;
}

void require_not_recording(const char* what) {
  if (recording) {
    throw std::logic_error(std::string("[emulation] ") + what + " while work is being captured");
  }
}

}  // namespace steelyard::emulation
