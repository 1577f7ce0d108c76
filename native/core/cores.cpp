#include "cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace nimble {
namespace {

namespace fs = std::filesystem;

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

bool listed(const std::string& list, const std::string& name) {
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    if (item == name) return true;
  }
  return false;
}

// The control group that rules the process's CPU time: in the v1 hierarchy with the cpu
// controller, or in the v2 one. Empty if it is in none.
std::string group_of_process(const fs::path& root, bool v2) {
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (v2 ? controllers.empty() : listed(controllers, "cpu")) return line.substr(second + 1);
  }
  return "";
}

double quota_v2(const fs::path& group) {
  std::ifstream file(group / "cpu.max");
  double quota = 0, period = 0;  // "max 100000" fails to parse: no limit
  return file >> quota >> period && period > 0 ? quota / period : kNoLimit;
}

double quota_v1(const fs::path& group) {
  std::ifstream quota_file(group / "cpu.cfs_quota_us");
  std::ifstream period_file(group / "cpu.cfs_period_us");
  double quota = 0, period = 0;
  const bool limited = quota_file >> quota && period_file >> period && quota > 0 && period > 0;
  return limited ? quota / period : kNoLimit;
}

struct Mount {
  std::string root, point, type, options;
};

// A line of mountinfo: id parent device root point options [tags...] - type source options
bool parse(const std::string& line, Mount& mount) {
  std::istringstream fields(line);
  std::string skipped;
  fields >> skipped >> skipped >> skipped >> mount.root >> mount.point;
  while (fields >> skipped && skipped != "-") continue;
  return static_cast<bool>(fields >> mount.type >> skipped >> mount.options);
}

// The tightest quota from the process's group up to the top of the mount.
double quota_in(const Mount& mount, const fs::path& root) {
  const bool v2 = mount.type == "cgroup2";
  const std::string group = group_of_process(root, v2);
  if (group.empty()) return kNoLimit;
  const fs::path inner = fs::path(group).lexically_relative(mount.root).lexically_normal();
  const bool visible = !inner.empty() && *inner.begin() != "..";
  const fs::path top = root / fs::path(mount.point).relative_path();
  double quota = v2 ? quota_v2(top) : quota_v1(top);
  fs::path path = top;
  if (visible) {
    for (const fs::path& part : inner) {
      path /= part;
      quota = std::min(quota, v2 ? quota_v2(path) : quota_v1(path));
    }
  }
  return quota;
}

}  // namespace

std::vector<int> allowed_cores() {
  std::vector<int> cores;
  for (int most = 1024; cores.empty() && most <= 1 << 20; most *= 2) {
    cpu_set_t* set = CPU_ALLOC(most);
    const std::size_t bytes = CPU_ALLOC_SIZE(most);
    CPU_ZERO_S(bytes, set);
    const bool read = sched_getaffinity(getpid(), bytes, set) == 0;
    for (int core = 0; read && core < most; ++core) {
      if (CPU_ISSET_S(core, bytes, set)) cores.push_back(core);
    }
    CPU_FREE(set);
    if (!read && errno != EINVAL) break;  // EINVAL: the machine has more cores than fit
  }
  if (cores.empty()) cores.push_back(0);
  return cores;
}

double cpu_quota(const fs::path& root) {
  double quota = kNoLimit;
  std::ifstream mounts(root / "proc/self/mountinfo");
  Mount mount;
  for (std::string line; std::getline(mounts, line);) {
    if (!parse(line, mount)) continue;
    const bool v1 = mount.type == "cgroup" && listed(mount.options, "cpu");
    if (v1 || mount.type == "cgroup2") quota = std::min(quota, quota_in(mount, root));
  }
  return quota;
}

int usable_cores() {
  const double cores = static_cast<double>(allowed_cores().size());
  return std::max(1, static_cast<int>(std::min(cores, cpu_quota())));
}

}  // namespace nimble
