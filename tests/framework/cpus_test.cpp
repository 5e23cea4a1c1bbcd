#include "steelyard/framework/tensor/cpus.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

namespace steelyard {
namespace {

namespace fs = std::filesystem;

constexpr const char* kV2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
constexpr const char* kV1 =
    "34 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";

struct QuotaCase {
  const char* name;
  std::map<std::string, std::string> files;  // below the root
  std::optional<double> quota;
};

class CpuQuota : public ::testing::TestWithParam<QuotaCase> {};

TEST_P(CpuQuota, IsTheSmallestOfTheGroups) {
  std::string pattern = (fs::temp_directory_path() / "steelyard-cpus-XXXXXX").string();
  const fs::path root = mkdtemp(pattern.data());
  for (const auto& [name, text] : GetParam().files) {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
  }
  EXPECT_EQ(cpu_quota(root), GetParam().quota);
  EXPECT_GE(usable_cpus(root), 1);
  EXPECT_LE(usable_cpus(root), std::ceil(GetParam().quota.value_or(1e9)));
  fs::remove_all(root);
}

INSTANTIATE_TEST_SUITE_P(
    , CpuQuota,
    ::testing::Values(
        QuotaCase{"NoProc", {}, {}},
        QuotaCase{"NoCgroups",
                  {{"proc/self/mountinfo", "24 1 8:1 / / rw - ext4 /dev/sda1 rw\n"},
                   {"proc/self/cgroup", "0::/\n"}},
                  {}},
        QuotaCase{"Version2",
                  {{"proc/self/mountinfo", kV2},
                   {"proc/self/cgroup", "0::/user.slice/job\n"},
                   {"sys/fs/cgroup/user.slice/job/cpu.max", "150000 100000\n"}},
                  1.5},
        QuotaCase{"TheGroupAboveIsTighter",
                  {{"proc/self/mountinfo", kV2},
                   {"proc/self/cgroup", "0::/user.slice/job\n"},
                   {"sys/fs/cgroup/user.slice/cpu.max", "50000 100000\n"},
                   {"sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n"}},
                  0.5},
        QuotaCase{"Unlimited",
                  {{"proc/self/mountinfo", kV2},
                   {"proc/self/cgroup", "0::/job\n"},
                   {"sys/fs/cgroup/job/cpu.max", "max 100000\n"}},
                  {}},
        QuotaCase{"ContainerWithItsOwnNamespace",
                  {{"proc/self/mountinfo", kV2},
                   {"proc/self/cgroup", "0::/\n"},
                   {"sys/fs/cgroup/cpu.max", "300000 100000\n"}},
                  3},
        QuotaCase{"Version1",
                  {{"proc/self/mountinfo", kV1},
                   {"proc/self/cgroup", "4:cpuset:/\n3:cpu,cpuacct:/job\n0::/other\n"},
                   {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
                   {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"},
                   {"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n"},
                   {"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"}},
                  2.5},
        QuotaCase{"ContainerWithTheHostsPath",
                  {{"proc/self/mountinfo",
                    "34 31 0:29 /docker/1f /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"},
                   {"proc/self/cgroup", "3:cpu:/docker/1f/inner\n"},
                   {"sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", "400000\n"},
                   {"sys/fs/cgroup/cpu/inner/cpu.cfs_period_us", "100000\n"},
                   {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n"},
                   {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
                  2},
        QuotaCase{"DamagedFiles",
                  {{"proc/self/mountinfo", "30 24\n- - -\n" + std::string(kV2)},
                   {"proc/self/cgroup", "no colon\n0:\n0::/job\n"},
                   {"sys/fs/cgroup/job/cpu.max", "x 100000"}},
                  {}}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace steelyard
