// Eight floats. Without AVX the compiler splits each operation into two of four floats.
#pragma once

#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define NIMBLE_INLINE [[gnu::always_inline, maybe_unused]] static inline
#define NIMBLE_INLINE_MEMBER [[gnu::always_inline]] inline

namespace nimble::NIMBLE_ISA {

using F8 = float __attribute__((vector_size(32)));
using I8 = std::int32_t __attribute__((vector_size(32)));
using UnalignedF8 = float __attribute__((vector_size(32), aligned(4), may_alias));

template <class T>
NIMBLE_INLINE T least(T a, T b) { return b < a ? b : a; }
template <class T>
NIMBLE_INLINE T most(T a, T b) { return a < b ? b : a; }

NIMBLE_INLINE F8 splat(float x) { return F8{x, x, x, x, x, x, x, x}; }
NIMBLE_INLINE I8 splat_int(std::int32_t x) { return I8{x, x, x, x, x, x, x, x}; }
NIMBLE_INLINE F8 load(const float* p) { return *reinterpret_cast<const UnalignedF8*>(p); }
NIMBLE_INLINE void store(float* p, F8 x) { *reinterpret_cast<UnalignedF8*>(p) = x; }
NIMBLE_INLINE I8 bits(F8 x) { return reinterpret_cast<I8>(x); }
NIMBLE_INLINE F8 floats(I8 x) { return reinterpret_cast<F8>(x); }
NIMBLE_INLINE F8 select(I8 mask, F8 yes, F8 no) { return mask ? yes : no; }

// The first `count` < 8 elements; nothing beyond them is touched. The others are 0.
NIMBLE_INLINE I8 first(std::int64_t count) {
  return I8{0, 1, 2, 3, 4, 5, 6, 7} < splat_int(static_cast<std::int32_t>(count));
}
NIMBLE_INLINE F8 load(const float* p, std::int64_t count) {
#if defined(__AVX2__)
  return _mm256_maskload_ps(p, reinterpret_cast<__m256i>(first(count)));
#else
  F8 x = {};
  for (std::int64_t i = 0; i < count; ++i) x[i] = p[i];
  return x;
#endif
}
NIMBLE_INLINE void store(float* p, F8 x, std::int64_t count) {
#if defined(__AVX2__)
  _mm256_maskstore_ps(p, reinterpret_cast<__m256i>(first(count)), x);
#else
  for (std::int64_t i = 0; i < count; ++i) p[i] = x[i];
#endif
}

NIMBLE_INLINE F8 fma(F8 a, F8 b, F8 c) {
#if defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}
NIMBLE_INLINE F8 fma(F8 a, float b, F8 c) { return fma(a, splat(b), c); }
NIMBLE_INLINE F8 fma(F8 a, F8 b, float c) { return fma(a, b, splat(c)); }

// NaN stays NaN: of two numbers one of which is NaN, these instructions give the second.
NIMBLE_INLINE F8 between(F8 x, F8 low, F8 high) {
#if defined(__AVX2__)
  return _mm256_min_ps(high, _mm256_max_ps(low, x));
#else
  x = select(x < low, low, x);
  return select(x > high, high, x);
#endif
}
NIMBLE_INLINE F8 between(F8 x, float low, float high) { return between(x, splat(low), splat(high)); }

NIMBLE_INLINE F8 absolute(F8 x) { return floats(bits(x) & 0x7fffffff); }
NIMBLE_INLINE F8 with_sign(F8 magnitude, F8 sign) {
  return floats((bits(magnitude) & 0x7fffffff) | (bits(sign) & INT32_MIN));
}

NIMBLE_INLINE F8 root(F8 x) {
#if defined(__AVX2__)
  return _mm256_sqrt_ps(x);
#else
  for (int i = 0; i < 8; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

// Half to even.
NIMBLE_INLINE F8 rounded(F8 x) {
#if defined(__AVX2__)
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  const F8 whole = splat(8388608.0f);  // 2^23: floats from there on are integers
  const F8 magnitude = absolute(x);
  const F8 near = (magnitude + whole) - whole;
  return select(magnitude < whole, with_sign(near, x), x);
#endif
}

// NaN if either is.
NIMBLE_INLINE F8 maximum(F8 a, F8 b) {
  const F8 larger = a > b ? a : b;
  return select(a != a, a, larger);
}
NIMBLE_INLINE F8 minimum(F8 a, F8 b) {
  const F8 smaller = a < b ? a : b;
  return select(a != a, a, smaller);
}

NIMBLE_INLINE float sum(F8 x) {
  const float a = (x[0] + x[4]) + (x[2] + x[6]);
  const float b = (x[1] + x[5]) + (x[3] + x[7]);
  return a + b;
}
NIMBLE_INLINE float largest(F8 x) {
  float result = x[0];
  for (int i = 1; i < 8; ++i) result = (x[i] > result || x[i] != x[i]) ? x[i] : result;
  return result;
}

}  // namespace nimble::NIMBLE_ISA
