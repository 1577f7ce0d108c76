// How many cores this process may use, and which.
#pragma once

#include <filesystem>
#include <vector>

namespace nimble {

// The cores in the affinity mask of the process, ascending; never empty.
std::vector<int> allowed_cores();

// What the control groups (v1 or v2) of this process grant it, in cores; infinity if no limit is
// set. `root` is where /proc and the mounts are looked up.
double cpu_quota(const std::filesystem::path& root = "/");

// Allowed cores, no more than the quota pays for in full; at least 1.
int usable_cores();

}  // namespace nimble
