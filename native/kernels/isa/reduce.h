// Sums and largest values of rows without gaps.
#pragma once

#include "vec.h"

namespace nimble::NIMBLE_ISA {

// Sums f of each element. Blocks of at most 4096 are summed by themselves, so that the rounding
// error of a long row stays small. Elements past the end count as f(pad).
template <class F>
NIMBLE_INLINE float sum_of(const float* x, std::int64_t count, F f) {
  float total = 0.0f;
  for (std::int64_t start = 0; start < count; start += 4096) {
    const std::int64_t n = least<std::int64_t>(4096, count - start);
    const float* at = x + start;
    Floats s[4] = {splat(0.0f), splat(0.0f), splat(0.0f), splat(0.0f)};
    std::int64_t i = 0;
    for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
#pragma GCC unroll 4
      for (int part = 0; part < 4; ++part) s[part] += f(load(at + i + part * kLanes));
    }
    for (; i + kLanes <= n; i += kLanes) s[0] += f(load(at + i));
    if (i < n) s[1] += select(first(n - i), f(load(at + i, n - i)), splat(0.0f));
    total += sum((s[0] + s[1]) + (s[2] + s[3]));
  }
  return total;
}

NIMBLE_INLINE float sum_of(const float* x, std::int64_t count) {
  return sum_of(x, count, [](Floats v) __attribute__((always_inline)) { return v; });
}

// NaN if there is one.
NIMBLE_INLINE float largest_of(const float* x, std::int64_t count) {
  Floats a = splat(-__builtin_inff()), b = a;
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    a = maximum(a, load(x + i));
    b = maximum(b, load(x + i + kLanes));
  }
  for (; i + kLanes <= count; i += kLanes) a = maximum(a, load(x + i));
  if (i < count) b = maximum(b, select(first(count - i), load(x + i, count - i), b));
  return largest(maximum(a, b));
}

}  // namespace nimble::NIMBLE_ISA
