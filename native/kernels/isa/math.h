// Elementary functions of vectors of floats, within about two units in the last place (three and a half
// where exp(x) is taken on the way and is below 1e-8).
#pragma once

#include <cmath>

#include "vec.h"

namespace nimble::NIMBLE_ISA {

NIMBLE_INLINE Ints to_int(Floats x) { return __builtin_convertvector(x, Ints); }
NIMBLE_INLINE Floats to_float(Ints x) { return __builtin_convertvector(x, Floats); }

// 2^n for whole n in [-126, 127].
NIMBLE_INLINE Floats power_of_two(Ints n) { return floats((n + 127) << 23); }

// exp(r) for |r| <= ln(2)/2: the polynomial of this degree whose largest relative error is least.
NIMBLE_INLINE Floats exp_near_zero(Floats r) {
  Floats p = splat(1.383683556e-3f);
  p = fma(p, r, 8.374824160e-3f);
  p = fma(p, r, 4.166822620e-2f);
  p = fma(p, r, 1.666642007e-1f);
  p = fma(p, r, 4.999999208e-1f);
  p = fma(p, r, 1.0f);
  return fma(p, r, 1.0f);
}

constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;

// x = n ln(2) + r
struct Reduced {
  Floats r;
  Ints n;
};
NIMBLE_INLINE Reduced reduce(Floats x) {
  const Floats n = rounded(x * splat(1.44269504f));
  return {fma(n, -kLn2Low, fma(n, -kLn2High, x)), to_int(n)};
}

NIMBLE_INLINE Floats exp_of(Floats x) {
  // Beyond these the result is 0 or infinite whatever x is. NaN passes.
  x = select(x < splat(-104.0f), splat(-104.0f), x);
  x = select(x > splat(89.0f), splat(89.0f), x);
  const Reduced reduced = reduce(x);
  // In two steps, since 2^n itself may be out of range where exp(x) is not.
  const Ints half = reduced.n >> 1;
  return exp_near_zero(reduced.r) * power_of_two(half) * power_of_two(reduced.n - half);
}

// 2^(i / kLanes)
#if defined(__AVX512F__)
alignas(64) inline constexpr float kRootsOfTwo[] = {
    1.0f, 1.04427378f, 1.09050773f, 1.13878863f, 1.18920712f, 1.24185781f, 1.29683955f, 1.35425555f,
    1.41421356f, 1.47682615f, 1.54221083f, 1.61049033f, 1.68179283f, 1.75625216f, 1.83400809f,
    1.91520656f};
inline constexpr int kLanesLog2 = 4;
#else
alignas(32) inline constexpr float kRootsOfTwo[] = {
    1.0f, 1.09050773f, 1.18920712f, 1.29683955f, 1.41421356f, 1.54221083f, 1.68179283f, 1.83400809f};
inline constexpr int kLanesLog2 = 3;
#endif

// exp(kSign x) = near * power, for results that are normal; infinite from 88.68 up to 88.7229, NaN for NaN. With
// kSign x = n ln(2) + r, where n is rounded to parts of kLanes by the addition of a number whose last digit
// is worth one of them: r is so small then that little of a polynomial is left, and the fraction of 2^n is
// looked up. In one step r is off by n times what ln(2) loses as a float.
struct Factors {
  Floats near, power;
};
template <int kSign, int kSteps = 1>
NIMBLE_INLINE Factors exp_factors(Floats x) {
  const Floats magic = splat(12582912.0f / kLanes);
  const Floats shifted = fma(x, splat(kSign * 1.44269504f), magic), n = shifted - magic;
  const Floats r =
      kFused && kSteps == 1
          ? fma(n, splat(-kSign * 0.693147181f), x)
          : fma(n, splat(-kSign * kLn2Low), fma(n, splat(-kSign * kLn2High), x));
  Floats p = fma(splat(kSign * 1.66668590e-1f), r, 5.00064730e-1f);
  p = fma(p, r, static_cast<float>(kSign));
  const Ints whole = bits(shifted) >> kLanesLog2 << 23;
  const Ints fraction = bits(lookup(load(kRootsOfTwo), bits(shifted)));
  return {fma(p, r, 1.0f), floats(whole + fraction)};
}

// exp(x) for x in [-87, 88], or NaN.
NIMBLE_INLINE Floats exp_in_range(Floats x) {
  const Factors factors = exp_factors<1>(x);
  return factors.near * factors.power;
}

// exp(x) for x <= 0, or NaN. Results that would be denormal are 0.
NIMBLE_INLINE Floats exp_of_negative(Floats x) {
  return select(x < splat(-87.0f), splat(0.0f), exp_in_range(x));
}

NIMBLE_INLINE Floats expm1_of(Floats x) {
  x = select(x < splat(-104.0f), splat(-104.0f), x);
  x = select(x > splat(89.0f), splat(89.0f), x);
  const Reduced reduced = reduce(x);
  const Floats r = reduced.r;
  Floats p = splat(1.98412698e-4f);
  p = fma(p, r, 1.39304355e-3f);
  p = fma(p, r, 8.33336077e-3f);
  p = fma(p, r, 4.16664853e-2f);
  p = fma(p, r, 1.66666657e-1f);
  p = fma(p, r, 0.5f);
  p = fma(p * r, r, r);  // exp(r) - 1
  const Ints half = reduced.n >> 1;
  const Floats a = power_of_two(half), b = power_of_two(reduced.n - half);
  // 2^n (p + 1) - 1, without losing p where n is 0; where n is large the -1 no longer counts.
  const Floats small = fma(a * b, p, a * b - splat(1.0f));
  const Floats large = (p + splat(1.0f)) * a * b;
  const Floats result = select(reduced.n > splat_int(60), large, small);
  return select(x == splat(0.0f), x, result);  // keeps -0
}

NIMBLE_INLINE Floats log_of(Floats x) {
  const Floats tiny = splat(1.17549435e-38f);
  const Floats normal = select(x < tiny, x * splat(8388608.0f), x);
  const Ints raw = bits(normal);
  // m in [sqrt(1/2), sqrt(2)), x = m 2^e
  const Ints offset = raw - splat_int(0x3f3504f3);
  Ints e = offset >> 23;
  const Floats m = floats((offset & 0x007fffff) + splat_int(0x3f3504f3));
  e = x < tiny ? e - 23 : e;
  const Floats f = m - splat(1.0f), n = to_float(e);
  Floats p = splat(7.0376836292e-2f);
  p = fma(p, f, -1.1514610310e-1f);
  p = fma(p, f, 1.1676998740e-1f);
  p = fma(p, f, -1.2420140846e-1f);
  p = fma(p, f, 1.4249322787e-1f);
  p = fma(p, f, -1.6668057665e-1f);
  p = fma(p, f, 2.0000714765e-1f);
  p = fma(p, f, -2.4999993993e-1f);
  p = fma(p, f, 3.3333331174e-1f);
  const Floats z = f * f;
  Floats y = fma(p * z, f, n * splat(kLn2Low));
  y = fma(z, -0.5f, y);
  Floats result = fma(n, kLn2High, f + y);
  result = select(x == splat(__builtin_inff()), x, result);
  result = select(x == splat(0.0f), splat(-__builtin_inff()), result);
  return select((x < splat(0.0f)) | (x != x), splat(__builtin_nanf("")), result);
}

NIMBLE_INLINE Floats log1p_of(Floats x) {
  const Floats u = x + splat(1.0f);
  // What rounding took from 1 + x, as a relative error of u.
  const Floats lost = (x - (u - splat(1.0f))) / u;
  const Floats result = select((u == splat(__builtin_inff())) | (u == splat(0.0f)), log_of(u),
                           log_of(u) + lost);
  return select(absolute(x) < splat(1e-8f), x, result);  // keeps -0
}

NIMBLE_INLINE Floats tanh_of(Floats x) {
  const Floats t = absolute(x);
  // Odd polynomial near 0, where the other form loses digits.
  const Floats s = x * x;
  Floats p = splat(-5.70498872745e-3f);
  p = fma(p, s, 2.06390887954e-2f);
  p = fma(p, s, -5.37397155531e-2f);
  p = fma(p, s, 1.33314422036e-1f);
  p = fma(p, s, -3.33332819422e-1f);
  const Floats near = fma(p * s, x, x);
  const Floats bounded = select(t > splat(10.0f), splat(10.0f), t);  // where the result is 1 already
  const Floats far = splat(1.0f) - splat(2.0f) / (exp_in_range(bounded + bounded) + splat(1.0f));
  return with_sign(select(t < splat(0.625f), near, far), x);  // keeps -0
}

// 1 + exp(-x). Beyond the bounds that is 1 or infinite.
template <int kSteps = 1>
NIMBLE_INLINE Floats one_and_exp_of_minus(Floats x) {
  const Factors factors = exp_factors<-1, kSteps>(between(x, -88.7228f, 87.0f));
  return fma(factors.near, factors.power, 1.0f);
}
NIMBLE_INLINE Floats sigmoid_of(Floats x) { return splat(1.0f) / one_and_exp_of_minus<2>(x); }

// After N. Juffa.
NIMBLE_INLINE Floats erf_of(Floats x) {
  const Floats t = absolute(x), s = x * x;
  Floats far = fma(splat(-1.72853470e-5f), t, 3.83197126e-4f);
  far = fma(far, s, fma(splat(-3.88396438e-3f), t, 2.42546219e-2f));
  far = fma(far, t, -1.06777877e-1f);
  far = fma(far, t, -6.34846687e-1f);
  far = fma(far, t, -1.28717512e-1f);
  far = fma(far, t, -t);
  // The polynomial turns up again for large t, where erf is 1.
  far = splat(1.0f) - exp_in_range(select(t > splat(4.0f), splat(-20.0f), far));
  Floats near = splat(-5.96761703e-4f);
  near = fma(near, s, 4.99119423e-3f);
  near = fma(near, s, -2.67681349e-2f);
  near = fma(near, s, 1.12819925e-1f);
  near = fma(near, s, -3.76125336e-1f);
  near = fma(near, s, 1.28379166e-1f);
  near = fma(near, x, x);
  // NaN takes `near`.
  return select(t > splat(0.927734375f), with_sign(far, x), near);
}

// One after the other, by the C library.
template <float (*of)(float)>
NIMBLE_INLINE Floats each(Floats x) {
  for (int i = 0; i < kLanes; ++i) x[i] = of(x[i]);
  return x;
}

#if defined(__AVX2__)
// sin(x + quadrants pi/2). Only FMA keeps enough digits of x mod pi/2; beyond 8192 not even that.
template <int kQuadrants, float (*exact)(float)>
NIMBLE_INLINE Floats sine(Floats x) {
  if (any(~(absolute(x) < splat(8192.0f)))) return each<exact>(x);
  const Floats n = rounded(x * splat(0.636619772f));
  Floats r = fma(n, splat(-1.57079637f), x);
  r = fma(n, splat(4.37113883e-8f), r);
  r = fma(n, splat(1.71512489e-15f), r);
  const Ints quadrant = to_int(n) + kQuadrants;
  const Floats z = r * r;
  Floats s = fma(splat(-1.9515295891e-4f), z, 8.3321608736e-3f);
  s = fma(s, z, -1.6666654611e-1f);
  s = fma(s * z, r, r);
  Floats c = fma(splat(2.443315711809948e-5f), z, -1.388731625493765e-3f);
  c = fma(c, z, 4.166664568298827e-2f);
  c = fma(c * z, z, fma(z, -0.5f, splat(1.0f)));
  const Floats value = select((quadrant & 1) != 0, c, s);
  return floats(bits(value) ^ ((quadrant & 2) << 30));
}
NIMBLE_INLINE Floats sin_of(Floats x) {
  return select(x == splat(0.0f), x, sine<0, ::sinf>(x));  // keeps -0
}
NIMBLE_INLINE Floats cos_of(Floats x) { return sine<1, ::cosf>(x); }
#else
NIMBLE_INLINE Floats sin_of(Floats x) { return each<::sinf>(x); }
NIMBLE_INLINE Floats cos_of(Floats x) { return each<::cosf>(x); }
#endif

NIMBLE_INLINE Floats pow_of(Floats x, Floats y) {
  for (int i = 0; i < kLanes; ++i) x[i] = ::powf(x[i], y[i]);
  return x;
}

NIMBLE_INLINE Floats floor_of(Floats x) {
  const Floats near = rounded(x);
  return with_sign(select(near > x, near - splat(1.0f), near), x);
}
NIMBLE_INLINE Floats ceil_of(Floats x) { return -floor_of(-x); }
NIMBLE_INLINE Floats trunc_of(Floats x) { return with_sign(floor_of(absolute(x)), x); }

// x times the normal distribution's share below x: 1/2 + z p(z z) / q(z z), fitted up to 5.54, where
// the share is 1 to float's precision. What is left of it below -5.54 is error only.
NIMBLE_INLINE Floats gelu_erf_of(Floats x) {
  const Floats z = between(x, -5.54f, 5.54f), s = z * z;
  Floats p = fma(splat(2.265098784e-8f), s, 6.295037885e-6f);
  Floats q = fma(splat(1.190378271e-6f), s, 7.265639581e-5f);
  p = fma(p, s, 1.664117276e-4f);
  q = fma(q, s, 1.871114131e-3f);
  p = fma(p, s, 4.662331468e-3f);
  q = fma(q, s, 2.852690220e-2f);
  p = fma(p, s, 3.365877088e-2f);
  q = fma(q, s, 2.510364056e-1f);
  p = fma(p, s, 3.989422592e-1f);
  q = fma(q, s, 1.0f);
  const Floats share = p * z / q + splat(0.5f);
  return x * select(x < splat(-5.54f), splat(0.0f), share);
}
NIMBLE_INLINE Floats gelu_tanh_of(Floats x) {
  // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u))
  return x / one_and_exp_of_minus(splat(1.5957691f) * fma(splat(0.044715f) * x * x, x, x));
}
NIMBLE_INLINE Floats silu_of(Floats x) { return x / one_and_exp_of_minus(x); }
NIMBLE_INLINE Floats hardsigmoid_of(Floats x) {
  const Floats three = splat(3.0f), six = splat(6.0f), zero = splat(0.0f);
  Floats y = x + three;
  y = select(y < zero, zero, y);
  return select(y > six, six, y) / six;
}
NIMBLE_INLINE Floats softplus_of(Floats x, Floats beta, Floats threshold) {
  const Floats scaled = x * beta;
  return select(scaled > threshold, x, log1p_of(exp_of(scaled)) / beta);
}
// tanh(log(1 + e)) = n / (n + 2) with n = e (e + 2).
NIMBLE_INLINE Floats mish_of(Floats x) {
  const Floats e = exp_of(x), n = e * (e + splat(2.0f));
  return select(x > splat(20.0f), x, x * (n / (n + splat(2.0f))));
}

}  // namespace nimble::NIMBLE_ISA
