#pragma once

#include "math.h"
#include "reduce.h"

namespace nimble::NIMBLE_ISA {

// Adds a mask whose elements are `step` apart.
NIMBLE_INLINE void add_mask(float* x, const float* mask, std::int64_t step, std::int64_t n) {
  if (step == 1) {
    for (std::int64_t i = 0; i < n; ++i) x[i] += mask[i];
  } else {
    for (std::int64_t i = 0; i < n; ++i) x[i] += mask[i * step];
  }
}

// y = f(x)
template <class F>
NIMBLE_INLINE void map_row(float* y, const float* x, std::int64_t n, F f) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, f(load(x + i)));
  if (i < n) store(y + i, f(load(x + i, n - i)), n - i);
}

// y = exp(x - largest), which may be x itself; returns the sum.
NIMBLE_INLINE float exp_row(float* y, const float* x, std::int64_t n, float largest) {
  const Floats top = splat(largest);
  Floats a = splat(0.0f), b = a;
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const Floats p = exp_of_negative(load(x + i) - top), q = exp_of_negative(load(x + i + kLanes) - top);
    store(y + i, p);
    store(y + i + kLanes, q);
    a += p;
    b += q;
  }
  for (; i + kLanes <= n; i += kLanes) {
    const Floats p = exp_of_negative(load(x + i) - top);
    store(y + i, p);
    a += p;
  }
  if (i < n) {
    const Floats p = exp_of_negative(load(x + i, n - i) - top);
    store(y + i, p, n - i);
    b += select(first(n - i), p, splat(0.0f));
  }
  return sum(a + b);
}

}  // namespace nimble::NIMBLE_ISA
