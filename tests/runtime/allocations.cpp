#include "tests/runtime/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

// Trivial: used before constructors run.
std::atomic<std::int64_t> calls_of_new = 0, calls_of_delete = 0;
std::atomic<std::int64_t> first_failing = 0, last_failing = -1;

}  // namespace

namespace steelyard::testing {

std::int64_t heap_allocations() { return calls_of_new; }
std::int64_t heap_blocks() { return calls_of_new - calls_of_delete; }

FailingAllocations::FailingAllocations(std::int64_t first, std::int64_t count)
    : first_(calls_of_new + first) {
  first_failing = first_;
  last_failing = first_ + count - 1;
}

FailingAllocations::~FailingAllocations() { last_failing = -1; }

bool FailingAllocations::happened() const { return calls_of_new >= first_; }

}  // namespace steelyard::testing

// Tensors' memory comes from their allocator, which counts for itself.
void* operator new(std::size_t bytes) {
  const std::int64_t call = ++calls_of_new;
  void* const memory =
      call >= first_failing && call <= last_failing ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
  if (memory != nullptr) return memory;
  ++calls_of_delete;  // of which nothing is left
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr) ++calls_of_delete;
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
