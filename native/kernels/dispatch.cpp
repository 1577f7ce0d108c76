#include "dispatch.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace nimble {
namespace {

InstructionSet chosen() {
  const char* asked = std::getenv("NIMBLE_ISA");
  const bool any = asked == nullptr || *asked == '\0';
  InstructionSet best{};
  std::string here;
  bool known = false;
  for (const InstructionSet isa : kInstructionSets) {
    const std::string name = name_of(isa);
    known = known || (!any && name == asked);
    if (!has(isa)) continue;
    if (!any && name == asked) return isa;
    here += (here.empty() ? "" : ", ") + name;
    best = isa;
  }
  if (any) return best;
  throw std::invalid_argument("NIMBLE_ISA is '" + std::string(asked) + "', which " +
                              (known ? "this machine does not have" : "is no instruction set") +
                              "; expected one of " + here + ", or leave it unset for the last of them");
}

}  // namespace

const char* name_of(InstructionSet isa) {
  switch (isa) {
    case InstructionSet::avx512: return "avx512";
    case InstructionSet::avx2: return "avx2";
    default: return "generic";
  }
}

bool has(InstructionSet isa) {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (isa == InstructionSet::avx2) return avx2;
  if (isa == InstructionSet::avx512) {
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  }
#endif
  return isa == InstructionSet::generic;
}

bool multiplies_bfloat16() {
#if defined(__x86_64__)
  return instruction_set() == InstructionSet::avx512 && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

InstructionSet instruction_set() {
  static const InstructionSet isa = chosen();
  return isa;
}

}  // namespace nimble
