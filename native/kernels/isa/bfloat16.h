// Numbers in bfloat16, which are the upper halves of floats.
#pragma once

#include "vec.h"

namespace nimble::NIMBLE_ISA {

// The nearest numbers that bfloat16 has, half to even.
NIMBLE_INLINE Floats as_bfloat16(Floats x) {
  const Ints odd = (bits(x) >> 16) & 1;
  const Floats near = floats((bits(x) + 0x7fff + odd) & ~0xffff);
  return select(x != x, splat(__builtin_nanf("")), near);
}

// Two numbers in bfloat16 that lie side by side: what one multiplication takes of each of them.
struct Couple {
  std::int32_t bits __attribute__((may_alias));
};
using UnalignedInts = std::int32_t __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
NIMBLE_INLINE Ints load(const Couple* p) { return *reinterpret_cast<const UnalignedInts*>(p); }
NIMBLE_INLINE Ints splat(Couple x) { return splat_int(x.bits); }

// c + the product of the first of each couple, and of the second.
NIMBLE_INLINE Floats fma(Ints a, Ints b, Floats c) {
#if defined(__AVX512F__)
  // An instruction that not every machine with AVX-512 has, as dispatch.h knows.
  asm("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  return c;
#else
  c = fma(floats(a << 16), floats(b << 16), c);
  return fma(floats(a & ~0xffff), floats(b & ~0xffff), c);
#endif
}

}  // namespace nimble::NIMBLE_ISA
