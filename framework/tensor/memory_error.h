// Out-of-memory errors that name what needed the memory.
#pragma once

#include <new>
#include <string>

#include "steelyard/framework/tensor/storage.h"

namespace steelyard {

// Runs `f`; if memory runs out in it, the message begins with `what`, a file or a tensor.
template <typename F>
auto with_memory_for(const std::string& what, const F& f) {
  try {
    return f();
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(what + ": " + error.what());
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(what + ": out of memory");
  }
}

}  // namespace steelyard
