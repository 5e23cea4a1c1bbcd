// Counts what a program takes from the heap.
#pragma once

#include <cstdint>

namespace steelyard::testing {

// Calls of operator new since the program's start, by all threads.
std::int64_t heap_allocations();

}  // namespace steelyard::testing
