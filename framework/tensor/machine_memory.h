// The size of main memory.
#pragma once

#include <cstdint>

namespace steelyard {

// Bytes of main memory that this process may have at most: the machine's, or what its control group
// is limited to.
std::int64_t machine_memory_bytes();

}  // namespace steelyard
