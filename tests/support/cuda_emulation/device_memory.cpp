#include "tests/support/cuda_emulation/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/support/cuda_emulation/emulation.h"

namespace steelyard::emulation {
namespace {

constexpr std::size_t kReserved = std::size_t{1} << 37;  // addresses, not memory
constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{1} << 21;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

struct Arena {
  std::byte* begin = nullptr;
  std::size_t used = 0;
  std::size_t held = 0;                                          // by blocks that were not released
  int open = 0;                                                  // accesses that live
  std::map<const void*, std::size_t> pages;                      // in bytes, of each block
  std::unordered_map<std::size_t, std::vector<void*>> released;  // by their pages
  std::recursive_mutex mutex;

  // Huge pages, as far as the system gives them: every launch opens and closes all that is used,
  // and pages of 4 KiB took half of the time of a training step.
  void reserve() {
    void* memory = mmap(nullptr, kReserved + kHugePage, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    begin =
        reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(memory), kHugePage));
    madvise(begin, kReserved, MADV_HUGEPAGE);
  }
  void protect() const {
    if (used == 0) return;
    if (mprotect(begin, round_up(used, kHugePage), open > 0 ? PROT_READ | PROT_WRITE : PROT_NONE) !=
        0) {
      throw std::bad_alloc();
    }
  }
};

Arena& arena() {
  static auto* arena = new Arena();
  return *arena;
}

}  // namespace

DeviceAccess::DeviceAccess() {
  const std::lock_guard lock(arena().mutex);
  if (arena().open++ == 0) arena().protect();
}

DeviceAccess::~DeviceAccess() {
  const std::lock_guard lock(arena().mutex);
  if (--arena().open == 0) arena().protect();
}

void* allocate_device_memory(std::size_t bytes) {
  Arena& a = arena();
  const std::lock_guard lock(a.mutex);
  if (a.begin == nullptr) a.reserve();
  const std::size_t pages = round_up(bytes, kPage);
  const std::size_t left = options().memory_limit - std::min(a.held, options().memory_limit);
  if (bytes > left || pages > left) return nullptr;
  std::vector<void*>& released = a.released[pages];
  if (released.empty() && pages > kReserved - a.used) return nullptr;
  a.held += pages;
  void* memory = a.begin + a.used;
  if (released.empty()) {
    a.used += pages;
    a.pages[memory] = pages;
    a.protect();
  } else {
    memory = released.back();
    released.pop_back();
  }
  const DeviceAccess access;
  std::memset(memory, options().poison, pages);
  return memory;
}

void release_device_memory(void* memory) noexcept {
  if (memory == nullptr) return;
  Arena& a = arena();
  const std::lock_guard lock(a.mutex);
  a.released[a.pages.at(memory)].push_back(memory);
  a.held -= a.pages.at(memory);
}

Place place_of(const void* pointer) {
  Arena& a = arena();
  const std::lock_guard lock(a.mutex);
  auto after = a.pages.upper_bound(pointer);
  if (after == a.pages.begin()) return {};
  const auto& [begin, bytes] = *--after;
  const auto at = static_cast<std::size_t>(static_cast<const std::byte*>(pointer) -
                                           static_cast<const std::byte*>(begin));
  if (at >= bytes) return {};
  return {begin, at, bytes - at};
}

void require_device_pointer(const void* pointer, int parameter) {
  const Arena& a = arena();
  const auto* p = static_cast<const std::byte*>(pointer);
  if (pointer == nullptr || a.begin == nullptr) return;
  if (p >= a.begin && p <= a.begin + a.used) return;
  throw std::logic_error("[emulation] parameter " + std::to_string(parameter) +
                         " of a kernel points to the host's memory");
}

}  // namespace steelyard::emulation
