#include "steelyard/framework/tensor/cpus.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace steelyard {
namespace {

namespace fs = std::filesystem;

// A mounted hierarchy of control groups that may limit processor time.
struct Hierarchy {
  bool v2 = false;
  fs::path mounted_group;  // the group that is seen at the mount point: "/" outside containers
  fs::path mount_point;
};

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

// Whether a list such as "cpu,cpuacct" has the item.
bool has_item(const std::string& list, std::string_view item) {
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) {
    if (word == item) return true;
  }
  return false;
}

// Lines of /proc/self/mountinfo: id, parent, device, root, mount point, options, optional fields,
// "-", type, source, options of the file system.
std::vector<Hierarchy> mounted_hierarchies(const fs::path& root) {
  std::vector<Hierarchy> found;
  std::ifstream in(root / "proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> words = words_of(line);
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (dash - words.begin() < 6 || words.end() - dash < 4) continue;
    const bool v2 = dash[1] == "cgroup2";
    if (!v2 && !(dash[1] == "cgroup" && has_item(dash[3], "cpu"))) continue;
    found.push_back({v2, words[3], words[4]});
  }
  return found;
}

// The process's group in a hierarchy, by lines "number:controllers:group" of /proc/self/cgroup;
// version 2 has the number 0 and no controllers.
fs::path own_group(const fs::path& root, bool v2) {
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (v2 ? line.starts_with("0::") : has_item(controllers, "cpu")) return line.substr(second + 1);
  }
  return "/";
}

std::optional<double> ratio(double quota, double period) {
  if (!(quota > 0) || !(period > 0)) return {};  // -1: no quota
  return quota / period;
}

std::optional<double> quota_of(const fs::path& group, bool v2) {
  double quota = 0;
  double period = 0;
  if (v2) {
    std::ifstream(group / "cpu.max") >> quota >> period;  // "max 100000" leaves both 0
  } else {
    std::ifstream(group / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group / "cpu.cfs_period_us") >> period;
  }
  return ratio(quota, period);
}

int affinity_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());  // more than 1,024, or unknown
}

}  // namespace

std::optional<double> cpu_quota(const fs::path& root) {
  std::optional<double> smallest;
  for (const Hierarchy& hierarchy : mounted_hierarchies(root)) {
    const fs::path mount = root / hierarchy.mount_point.relative_path();
    // A container may see its own group, or one above it, at the mount point.
    fs::path below = own_group(root, hierarchy.v2).lexically_relative(hierarchy.mounted_group);
    if (below.empty() || *below.begin() == "..") below = ".";
    for (fs::path group = below;; group = group.parent_path()) {
      const std::optional<double> quota = quota_of(mount / group, hierarchy.v2);
      if (quota) smallest = std::min(*quota, smallest.value_or(*quota));
      if (group.empty() || group == ".") break;
    }
  }
  return smallest;
}

int usable_cpus(const fs::path& root) {
  const int cpus = std::max(1, affinity_cpus());
  const std::optional<double> quota = cpu_quota(root);
  if (!quota || *quota >= cpus) return cpus;
  return std::max(1, static_cast<int>(std::ceil(*quota)));
}

}  // namespace steelyard
