// A vector of floats: sixteen with AVX-512, else eight. Without AVX the compiler splits each operation
// into two of four floats.
#pragma once

#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define NIMBLE_INLINE [[gnu::always_inline, maybe_unused]] static inline
#define NIMBLE_INLINE_MEMBER [[gnu::always_inline]] inline

namespace nimble::NIMBLE_ISA {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#else
inline constexpr int kLanes = 8;
#endif
inline constexpr int kPerPanel = 16 / kLanes;  // vectors of a panel's row

using Floats = float __attribute__((vector_size(4 * kLanes)));
using Ints = std::int32_t __attribute__((vector_size(4 * kLanes)));
using UnalignedFloats = float __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));

template <class T>
NIMBLE_INLINE T least(T a, T b) { return b < a ? b : a; }
template <class T>
NIMBLE_INLINE T most(T a, T b) { return a < b ? b : a; }

#if defined(__AVX512F__)
NIMBLE_INLINE Floats splat(float x) { return _mm512_set1_ps(x); }
NIMBLE_INLINE Ints splat_int(std::int32_t x) { return reinterpret_cast<Ints>(_mm512_set1_epi32(x)); }
NIMBLE_INLINE Ints numbers() { return Ints{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }
#else
NIMBLE_INLINE Floats splat(float x) { return Floats{x, x, x, x, x, x, x, x}; }
NIMBLE_INLINE Ints splat_int(std::int32_t x) { return Ints{x, x, x, x, x, x, x, x}; }
NIMBLE_INLINE Ints numbers() { return Ints{0, 1, 2, 3, 4, 5, 6, 7}; }
#endif
NIMBLE_INLINE Floats load(const float* p) { return *reinterpret_cast<const UnalignedFloats*>(p); }
NIMBLE_INLINE void store(float* p, Floats x) { *reinterpret_cast<UnalignedFloats*>(p) = x; }
NIMBLE_INLINE Ints bits(Floats x) { return reinterpret_cast<Ints>(x); }
NIMBLE_INLINE Floats floats(Ints x) { return reinterpret_cast<Floats>(x); }
NIMBLE_INLINE Floats select(Ints mask, Floats yes, Floats no) { return mask ? yes : no; }

// What the table holds at each index, of which only the last digits count.
NIMBLE_INLINE Floats lookup(Floats table, Ints index) {
#if defined(__AVX512F__)
  return _mm512_permutexvar_ps(reinterpret_cast<__m512i>(index), table);
#elif defined(__AVX2__)
  return _mm256_permutevar8x32_ps(table, reinterpret_cast<__m256i>(index));
#else
  Floats x = {};
  for (int i = 0; i < kLanes; ++i) x[i] = table[index[i] & (kLanes - 1)];
  return x;
#endif
}

// The first `count` < kLanes elements; nothing beyond them is touched. The others are 0.
NIMBLE_INLINE Ints first(std::int64_t count) {
  return numbers() < splat_int(static_cast<std::int32_t>(count));
}
#if defined(__AVX512F__)
NIMBLE_INLINE __mmask16 mask_of(std::int64_t count) {
  return static_cast<__mmask16>((1u << count) - 1);
}
#endif
NIMBLE_INLINE Floats load(const float* p, std::int64_t count) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(mask_of(count), p);
#elif defined(__AVX2__)
  return _mm256_maskload_ps(p, reinterpret_cast<__m256i>(first(count)));
#else
  Floats x = {};
  for (std::int64_t i = 0; i < count; ++i) x[i] = p[i];
  return x;
#endif
}
NIMBLE_INLINE void store(float* p, Floats x, std::int64_t count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, mask_of(count), x);
#elif defined(__AVX2__)
  _mm256_maskstore_ps(p, reinterpret_cast<__m256i>(first(count)), x);
#else
  for (std::int64_t i = 0; i < count; ++i) p[i] = x[i];
#endif
}

#if defined(__AVX2__)
inline constexpr bool kFused = true;  // whether a product is added before it is rounded
#else
inline constexpr bool kFused = false;
#endif
NIMBLE_INLINE Floats fma(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}
#if defined(__AVX512F__)
// Half a vector.
using Eight = float __attribute__((vector_size(32)));
using UnalignedEight = float __attribute__((vector_size(32), aligned(4), may_alias));
NIMBLE_INLINE Eight load_eight(const float* p) { return *reinterpret_cast<const UnalignedEight*>(p); }
NIMBLE_INLINE Eight load_eight(const float* p, std::int64_t count) {
  return _mm256_maskz_loadu_ps(static_cast<__mmask8>(mask_of(count)), p);
}
NIMBLE_INLINE void store(float* p, Eight x) { *reinterpret_cast<UnalignedEight*>(p) = x; }
NIMBLE_INLINE void store(float* p, Eight x, std::int64_t count) {
  _mm256_mask_storeu_ps(p, static_cast<__mmask8>(mask_of(count)), x);
}
NIMBLE_INLINE Eight splat_eight(float x) { return _mm256_set1_ps(x); }
NIMBLE_INLINE Eight first_eight(Floats x) { return _mm512_castps512_ps256(x); }
NIMBLE_INLINE Eight fma(Eight a, Eight b, Eight c) { return _mm256_fmadd_ps(a, b, c); }
NIMBLE_INLINE Eight between(Eight x, Eight low, Eight high) {
  return _mm256_min_ps(high, _mm256_max_ps(low, x));
}
#else
using Eight = Floats;
NIMBLE_INLINE Eight load_eight(const float* p) { return load(p); }
NIMBLE_INLINE Eight load_eight(const float* p, std::int64_t count) { return load(p, count); }
NIMBLE_INLINE Eight splat_eight(float x) { return splat(x); }
NIMBLE_INLINE Eight first_eight(Floats x) { return x; }
#endif
NIMBLE_INLINE Floats fma(Floats a, float b, Floats c) { return fma(a, splat(b), c); }
NIMBLE_INLINE Floats fma(Floats a, Floats b, float c) { return fma(a, b, splat(c)); }

// NaN stays NaN: of two numbers one of which is NaN, these instructions give the second.
NIMBLE_INLINE Floats between(Floats x, Floats low, Floats high) {
#if defined(__AVX512F__)
  return _mm512_min_ps(high, _mm512_max_ps(low, x));
#elif defined(__AVX2__)
  return _mm256_min_ps(high, _mm256_max_ps(low, x));
#else
  x = select(x < low, low, x);
  return select(x > high, high, x);
#endif
}
NIMBLE_INLINE Floats between(Floats x, float low, float high) { return between(x, splat(low), splat(high)); }

NIMBLE_INLINE Floats absolute(Floats x) { return floats(bits(x) & 0x7fffffff); }
NIMBLE_INLINE Floats with_sign(Floats magnitude, Floats sign) {
  return floats((bits(magnitude) & 0x7fffffff) | (bits(sign) & INT32_MIN));
}

NIMBLE_INLINE Floats root(Floats x) {
#if defined(__AVX512F__)
  return _mm512_sqrt_ps(x);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(x);
#else
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

// Half to even.
NIMBLE_INLINE Floats rounded(Floats x) {
#if defined(__AVX512F__)
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__AVX2__)
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  const Floats whole = splat(8388608.0f);  // 2^23: floats from there on are integers
  const Floats magnitude = absolute(x);
  const Floats near = (magnitude + whole) - whole;
  return select(magnitude < whole, with_sign(near, x), x);
#endif
}

#if defined(__AVX512F__)
NIMBLE_INLINE bool any(Ints mask) {
  return _mm512_movepi32_mask(reinterpret_cast<__m512i>(mask)) != 0;
}
#elif defined(__AVX2__)
NIMBLE_INLINE bool any(Ints mask) { return _mm256_movemask_ps(floats(mask)) != 0; }
#endif

// NaN if either is.
NIMBLE_INLINE Floats maximum(Floats a, Floats b) {
  const Floats larger = a > b ? a : b;
  return select(a != a, a, larger);
}
NIMBLE_INLINE Floats minimum(Floats a, Floats b) {
  const Floats smaller = a < b ? a : b;
  return select(a != a, a, smaller);
}

NIMBLE_INLINE float sum(Floats x) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps(x);
#else
  const float a = (x[0] + x[4]) + (x[2] + x[6]);
  const float b = (x[1] + x[5]) + (x[3] + x[7]);
  return a + b;
#endif
}
NIMBLE_INLINE float largest(Floats x) {
#if defined(__AVX512F__)
  if (_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) != 0) [[unlikely]] return __builtin_nanf("");
  return _mm512_reduce_max_ps(x);
#else
  float result = x[0];
  for (int i = 1; i < kLanes; ++i) result = (x[i] > result || x[i] != x[i]) ? x[i] : result;
  return result;
#endif
}

}  // namespace nimble::NIMBLE_ISA
