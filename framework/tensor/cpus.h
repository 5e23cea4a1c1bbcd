// The number of processors that this process may use; in a container that may be fewer than the
// machine has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace steelyard {

// The most threads that may be asked for: libgomp overflows its stack at some 20,000.
inline constexpr std::int32_t kMostThreads = 4096;

// The processors' worth of time that the process's control groups allow it (cgroup v1 and v2; the
// smallest quota of a group and those above it), such as 1.5. Nothing where none sets a quota.
// `root` is where proc/ and the mounted control groups are looked up.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

// The processors of the affinity mask, and no more than the quota, rounded up; at least 1. More
// threads than that only wait for each other.
int usable_cpus(const std::filesystem::path& root = "/");

}  // namespace steelyard
