// Stores that bypass the caches, for arrays too large to stay in them.
#pragma once

#include <cstdint>

namespace steelyard::kernels {

// True where `bytes` read and written exceed the last-level cache, so that a plain store would
// first fetch the line it overwrites. Inside the cache non-temporal stores lose up to 3x.
bool exceeds_cache(std::int64_t bytes);

// Copies count bytes from a small buffer in cache to memory with non-temporal stores (where the
// machine has them). The calling thread orders them with stream_fence() when it is done.
void stream_copy(void* to, const void* from, std::int64_t count);
void stream_fence();

}  // namespace steelyard::kernels
