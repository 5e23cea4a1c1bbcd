// kernels/cuda/cuda_memory.h for the emulated GPU: one device.
#include "steelyard/kernels/cuda/cuda_memory.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "steelyard/kernels/cuda/small_copy.h"
#include "tests/support/cuda_emulation/device_memory.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/cuda_emulation/queued_work.h"

namespace steelyard::kernels {
namespace {

struct Pinned {
  std::mutex mutex;
  std::map<const std::byte*, std::size_t> blocks;  // in bytes, by their addresses
};

Pinned& pinned() {
  static auto* pinned = new Pinned();
  return *pinned;
}

bool is_pinned(const void* memory) {
  const std::lock_guard lock(pinned().mutex);
  const auto* at = static_cast<const std::byte*>(memory);
  auto after = pinned().blocks.upper_bound(at);
  return after != pinned().blocks.begin() && at < (--after)->first + after->second;
}

}  // namespace

bool cuda_is_available() { return true; }
// The variable STEELYARD_EMULATED_GPUS, so that each process of a run has one of its own.
int cuda_device_count() {
  const char* count = std::getenv("STEELYARD_EMULATED_GPUS");
  return count != nullptr ? std::atoi(count) : 1;
}
std::string cuda_absence() { return ""; }
// The variable STEELYARD_EMULATED_PROBLEM, so that a whole program finds a device it cannot use.
std::string cuda_device_problem(int) {
  const char* problem = std::getenv("STEELYARD_EMULATED_PROBLEM");
  return problem != nullptr ? problem : "";
}
// The variable STEELYARD_EMULATED_UUID, so that each process of a run may see another one alone.
CudaIdentity cuda_identity(int index) {
  const char* uuid = std::getenv("STEELYARD_EMULATED_UUID");
  return {"emulated", (uuid != nullptr ? uuid : "emulated-") + std::to_string(index)};
}
void cuda_select_device(int) {}
int cuda_selected_device() { return 0; }
void* cuda_new_stream() { return emulation::new_stream(); }
void cuda_release_stream(void* stream) noexcept { emulation::release_stream(stream); }
void cuda_synchronize(const CudaQueue& queue) {
  emulation::require_not_recording("waited");
  emulation::finish(queue.stream);
}
void cuda_wait_for(const CudaQueue& queue, const CudaQueue& other) {
  emulation::wait_for(queue.stream, other.stream);
}

void* cuda_allocate(std::size_t bytes) {
  emulation::require_alive();
  return bytes == 0 ? nullptr : emulation::allocate_device_memory(bytes);
}
void cuda_release(void* memory) noexcept {
  if (memory != nullptr) emulation::finish_all();  // as cudaFree
  emulation::release_device_memory(memory);
}
void* cuda_allocate_pinned(std::size_t bytes) {
  void* memory = std::malloc(bytes);
  const std::lock_guard lock(pinned().mutex);
  pinned().blocks[static_cast<std::byte*>(memory)] = bytes;
  return memory;
}
void cuda_release_pinned(void* memory) noexcept {
  const std::lock_guard lock(pinned().mutex);
  pinned().blocks.erase(static_cast<std::byte*>(memory));
  std::free(memory);
}

void cuda_copy_to_device(const CudaQueue& queue, void* to, const void* from, std::size_t bytes) {
  emulation::require_not_recording("copied from the host");
  if (bytes <= cuda::kMostSmallBytes) return cuda::small_copy(queue, to, from, bytes);
  if (is_pinned(from)) {
    return emulation::queue_work(queue.stream,
                                 {"copy", nullptr, [=] { std::memcpy(to, from, bytes); }});
  }
  const auto* begin = static_cast<const std::byte*>(from);
  std::vector<std::byte> staged(begin, begin + bytes);
  emulation::queue_work(queue.stream, {"copy", nullptr, [to, bytes, staged = std::move(staged)] {
                                         std::memcpy(to, staged.data(), bytes);
                                       }});
}
void cuda_copy_to_host(const CudaQueue& queue, void* to, const void* from, std::size_t bytes) {
  emulation::require_not_recording("copied to the host");
  emulation::queue_work(queue.stream, {"copy", nullptr, [=] { std::memcpy(to, from, bytes); }});
  emulation::finish(queue.stream);
}
void cuda_copy_on_device(const CudaQueue& queue, void* to, const void* from, std::size_t bytes) {
  emulation::queue_work(
      queue.stream,
      {"copy", nullptr, [=] { std::memmove(to, from, bytes); }, {{to, bytes}, {from, bytes}}});
}

}  // namespace steelyard::kernels
