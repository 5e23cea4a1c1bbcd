// What the host asked of the emulated GPU.
#pragma once

#include <cstdint>

namespace steelyard::emulation {

// Copies of device memory to the host so far, each of which would wait for a real GPU.
std::int64_t copies_to_host();

}  // namespace steelyard::emulation
