// What each instruction of a program computes.
#pragma once

#include "../program.h"
#include "bfloat16.h"
#include "math.h"

namespace nimble::NIMBLE_ISA {

NIMBLE_INLINE Floats one_if(Ints mask) { return select(mask, splat(1.0f), splat(0.0f)); }

template <Op kOp>
NIMBLE_INLINE Floats apply(Floats x, [[maybe_unused]] Floats y, [[maybe_unused]] Floats z) {
  [[maybe_unused]] const Floats zero = splat(0.0f), one = splat(1.0f);
  if constexpr (kOp == Op::copy) return x;
  if constexpr (kOp == Op::add) return x + y;
  if constexpr (kOp == Op::sub) return x - y;
  if constexpr (kOp == Op::mul) return x * y;
  if constexpr (kOp == Op::div) return x / y;
  if constexpr (kOp == Op::maximum) return maximum(x, y);
  if constexpr (kOp == Op::minimum) return minimum(x, y);
  if constexpr (kOp == Op::neg) return -x;
  if constexpr (kOp == Op::abs) return absolute(x);
  if constexpr (kOp == Op::sqrt) return root(x);
  if constexpr (kOp == Op::rsqrt) return one / root(x);
  if constexpr (kOp == Op::reciprocal) return one / x;
  if constexpr (kOp == Op::square) return x * x;
  if constexpr (kOp == Op::exp) return exp_of(x);
  if constexpr (kOp == Op::log) return log_of(x);
  if constexpr (kOp == Op::log1p) return log1p_of(x);
  if constexpr (kOp == Op::expm1) return expm1_of(x);
  if constexpr (kOp == Op::tanh) return tanh_of(x);
  if constexpr (kOp == Op::sigmoid) return sigmoid_of(x);
  if constexpr (kOp == Op::erf) return erf_of(x);
  if constexpr (kOp == Op::sin) return sin_of(x);
  if constexpr (kOp == Op::cos) return cos_of(x);
  if constexpr (kOp == Op::floor) return floor_of(x);
  if constexpr (kOp == Op::ceil) return ceil_of(x);
  if constexpr (kOp == Op::round) return rounded(x);
  if constexpr (kOp == Op::trunc) return trunc_of(x);
  if constexpr (kOp == Op::relu) return select(x < zero, zero, x);
  if constexpr (kOp == Op::pow) return pow_of(x, y);
  if constexpr (kOp == Op::fma) return fma(x, y, z);
  if constexpr (kOp == Op::clamp) return minimum(maximum(x, y), z);
  if constexpr (kOp == Op::where) return select(x != zero, y, z);
  if constexpr (kOp == Op::eq) return one_if(x == y);
  if constexpr (kOp == Op::ne) return one_if(x != y);
  if constexpr (kOp == Op::lt) return one_if(x < y);
  if constexpr (kOp == Op::le) return one_if(x <= y);
  if constexpr (kOp == Op::gt) return one_if(x > y);
  if constexpr (kOp == Op::ge) return one_if(x >= y);
  if constexpr (kOp == Op::logical_and) return one_if((x != zero) & (y != zero));
  if constexpr (kOp == Op::logical_or) return one_if((x != zero) | (y != zero));
  if constexpr (kOp == Op::logical_not) return one_if(x == zero);
  if constexpr (kOp == Op::gelu_erf) return gelu_erf_of(x);
  if constexpr (kOp == Op::gelu_tanh) return gelu_tanh_of(x);
  if constexpr (kOp == Op::silu) return silu_of(x);
  if constexpr (kOp == Op::hardswish) return x * hardsigmoid_of(x);
  if constexpr (kOp == Op::hardsigmoid) return hardsigmoid_of(x);
  if constexpr (kOp == Op::softplus) return softplus_of(x, y, z);
  if constexpr (kOp == Op::leaky_relu) return select(x > zero, x, x * y);
  if constexpr (kOp == Op::elu) return select(x > zero, x, y * expm1_of(x));
  if constexpr (kOp == Op::mish) return mish_of(x);
  if constexpr (kOp == Op::bfloat16) return as_bfloat16(x);
}

}  // namespace nimble::NIMBLE_ISA
