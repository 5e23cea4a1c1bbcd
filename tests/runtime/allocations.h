// Counts what a program takes from the heap, and lets some of it fail.
#pragma once

#include <cstdint>

namespace steelyard::testing {

// Calls of operator new since the program's start, by all threads.
std::int64_t heap_allocations();
// Blocks that operator new gave and operator delete did not get back.
std::int64_t heap_blocks();

// As long as it lives, calls of operator new throw std::bad_alloc: from number `first` on (1 is the
// next one), `count` of them.
class FailingAllocations {
 public:
  FailingAllocations(std::int64_t first, std::int64_t count);
  ~FailingAllocations();
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

  // Whether one has failed.
  bool happened() const;

 private:
  std::int64_t first_;
};

}  // namespace steelyard::testing
