#include "steelyard/framework/tensor/machine_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace steelyard {

std::int64_t machine_memory_bytes() {
  std::int64_t bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  // Version 2 and 1 of control groups; "max" where there is no limit.
  for (const char* file :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::int64_t limit = 0;
    if (std::ifstream(file) >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

}  // namespace steelyard
