#include "../arithmetic.h"

#include "../../core/kernels.h"

namespace nimble::NIMBLE_ISA {
namespace {

struct Add {
  template <class T>
  static T of(T a, T b) { return a + b; }
};
struct Sub {
  template <class T>
  static T of(T a, T b) { return a - b; }
};
struct Mul {
  template <class T>
  static T of(T a, T b) { return a * b; }
};
struct Div {
  template <class T>
  static T of(T a, T b) { return a / b; }
};

// The output may be one of the inputs, so no `restrict`; still, no element depends on another.
template <class T, class Op>
void binary(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  T* out = call.operand<T>(0);
  const T* a = call.operand<const T>(1);
  const T* b = call.operand<const T>(2);
  const std::int64_t count = static_cast<const CountPlan*>(call.plan)->count;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) out[i] = Op::of(a[i], b[i]);
}

// Keeps NaN and -0.0, as PyTorch does.
template <class T>
void relu(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  T* out = call.operand<T>(0);
  const T* a = call.operand<const T>(1);
  const std::int64_t count = static_cast<const CountPlan*>(call.plan)->count;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) out[i] = a[i] < T(0) ? T(0) : a[i];
}

}  // namespace

void add_float32(void* call) { binary<float, Add>(call); }
void sub_float32(void* call) { binary<float, Sub>(call); }
void mul_float32(void* call) { binary<float, Mul>(call); }
void div_float32(void* call) { binary<float, Div>(call); }
void relu_float32(void* call) { relu<float>(call); }
void add_float64(void* call) { binary<double, Add>(call); }
void sub_float64(void* call) { binary<double, Sub>(call); }
void mul_float64(void* call) { binary<double, Mul>(call); }
void div_float64(void* call) { binary<double, Div>(call); }
void relu_float64(void* call) { relu<double>(call); }

}  // namespace nimble::NIMBLE_ISA
