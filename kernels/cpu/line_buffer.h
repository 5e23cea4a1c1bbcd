// Memory of a thread, which steps of training ask for again and again.
#pragma once

#include <cstdint>
#include <vector>

#include "steelyard/kernels/cpu/stream.h"

namespace steelyard::kernels {

// `size` elements that begin with a line of the cache, contents undefined: the calling thread's,
// valid until it asks for the same slot and type again.
template <typename T, int kSlot>
T* line_buffer(std::int64_t size) {
  constexpr std::int64_t kLine = kCacheLine / sizeof(T);
  thread_local std::vector<T> kept;
  if (std::ssize(kept) < size + kLine) kept.resize(static_cast<std::size_t>(size + kLine));
  return kept.data() + elements_before_line(kept.data());
}

}  // namespace steelyard::kernels
