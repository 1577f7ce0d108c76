#include "kernels.h"

#include <algorithm>
#include <stdexcept>

#include "../kernels/dispatch.h"
#include "../kernels/families.h"

namespace nimble {
namespace {

std::vector<NativeKernel> all_kernels() {
  std::vector<NativeKernel> kernels;
  for (const auto add : kFamilies) add(kernels);
  return kernels;
}

}  // namespace

const std::vector<NativeKernel>& native_kernels() {
  static const std::vector<NativeKernel> kernels = all_kernels();
  return kernels;
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const InstructionSet isa : kInstructionSets) {
    if (has(isa)) names.emplace_back(name_of(isa));
  }
  return names;
}

const NativeKernel& native_kernel(std::string_view name) {
  const auto& kernels = native_kernels();
  const auto found = std::find_if(kernels.begin(), kernels.end(),
                                  [&](const NativeKernel& kernel) { return kernel.name == name; });
  if (found != kernels.end()) return *found;
  std::string message = "there is no native kernel '" + std::string(name) + "'; there are";
  for (const NativeKernel& kernel : kernels) message += " " + kernel.name;
  throw std::invalid_argument(message);
}

}  // namespace nimble
