#include "tests/runtime/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> calls_of_new = 0;

}  // namespace

namespace steelyard::testing {

std::int64_t heap_allocations() { return calls_of_new; }

}  // namespace steelyard::testing

// Tensors' memory comes from their allocator, which counts for itself.
void* operator new(std::size_t bytes) {
  ++calls_of_new;
  if (void* const memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
