// The sources in isa/ are compiled once per instruction set, each time into another namespace.
#pragma once

#include "../core/replay_api.h"

// Declares kernels' functions for every instruction set, and `best_<name>()` for this machine's.
#if defined(__x86_64__)
#define NIMBLE_KERNEL(name)                                                 \
  namespace generic { void name(void* call); }                              \
  namespace avx2 { void name(void* call); }                                 \
  inline KernelFn best_##name() { return use_avx2() ? avx2::name : generic::name; }
#else
#define NIMBLE_KERNEL(name)                                                 \
  namespace generic { void name(void* call); }                              \
  inline KernelFn best_##name() { return generic::name; }
#endif

namespace nimble {

// Whether this machine has AVX2 and FMA, and the environment does not say NIMBLE_GENERIC=1.
bool use_avx2();

}  // namespace nimble
