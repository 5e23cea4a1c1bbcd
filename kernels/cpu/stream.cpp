#include "steelyard/kernels/cpu/stream.h"

#include <unistd.h>

#include <fstream>

namespace steelyard::kernels {
namespace {

// The level-3 cache that this core shares. sysfs first: sysconf adds up the caches of a whole
// package (320 MiB where a core sees 32).
std::int64_t last_level_cache_bytes() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  std::int64_t kibibytes = 0;
  char unit = 0;
  if (file >> kibibytes >> unit && unit == 'K' && kibibytes > 0) return kibibytes << 10;
#ifdef _SC_LEVEL3_CACHE_SIZE
  const std::int64_t bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes > 0) return bytes;
#endif
  return std::int64_t{32} << 20;
}

}  // namespace

bool exceeds_cache(std::int64_t bytes) {
  static const std::int64_t limit = last_level_cache_bytes();
  return bytes > limit;
}

}  // namespace steelyard::kernels
