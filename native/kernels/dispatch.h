// The sources in isa/ are compiled once per instruction set, each time into another namespace.
#pragma once

#include "../core/replay_api.h"

// Declares kernels' functions for every instruction set, and `best_<name>()` for this machine's.
#if defined(__x86_64__)
#define NIMBLE_KERNEL(name)                                          \
  namespace generic { void name(void* call); }                       \
  namespace avx2 { void name(void* call); }                          \
  namespace avx512 { void name(void* call); }                        \
  inline KernelFn best_##name() {                                    \
    switch (instruction_set()) {                                     \
      case InstructionSet::avx512: return avx512::name;              \
      case InstructionSet::avx2: return avx2::name;                  \
      default: return generic::name;                                 \
    }                                                                \
  }
#else
#define NIMBLE_KERNEL(name)                                          \
  namespace generic { void name(void* call); }                       \
  inline KernelFn best_##name() { return generic::name; }
#endif

// The same for kernels that multiply in bfloat16: of those with AVX-512 only some machines can.
#if defined(__x86_64__)
#define NIMBLE_BFLOAT16(name) \
  (instruction_set() == InstructionSet::avx512 && !multiplies_bfloat16() ? avx2::name : best_##name())
#else
#define NIMBLE_BFLOAT16(name) best_##name()
#endif

namespace nimble {

enum class InstructionSet { generic, avx2, avx512 };
inline constexpr InstructionSet kInstructionSets[] = {
    InstructionSet::generic, InstructionSet::avx2, InstructionSet::avx512};  // the best last

const char* name_of(InstructionSet isa);

// Whether this machine has it: AVX2 with FMA, AVX-512 with VL, BW and DQ.
bool has(InstructionSet isa);

// The one that kernels use: what NIMBLE_ISA in the environment names, or the best of this machine.
// Throws std::invalid_argument if there is none of that name, or not here.
InstructionSet instruction_set();

// Whether it has an instruction that multiplies in bfloat16; others make up for it, more slowly.
bool multiplies_bfloat16();

}  // namespace nimble
