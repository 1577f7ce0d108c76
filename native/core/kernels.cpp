#include "kernels.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace nimble {
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
struct Relu {
  // Keeps NaN and -0.0, as PyTorch does.
  template <class T>
  static T of(T a) { return a < T(0) ? T(0) : a; }
};

// The output may be one of the inputs, so no `restrict`; still, no element depends on another.
template <class T, class Op>
[[gnu::always_inline]] inline void unary_loop(const NativeCall& call) {
  T* out = call.operand<T>(0);
  const T* a = call.operand<const T>(1);
  const std::int64_t count = call.ints[0];
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) out[i] = Op::of(a[i]);
}

template <class T, class Op>
[[gnu::always_inline]] inline void binary_loop(const NativeCall& call) {
  T* out = call.operand<T>(0);
  const T* a = call.operand<const T>(1);
  const T* b = call.operand<const T>(2);
  const std::int64_t count = call.ints[0];
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) out[i] = Op::of(a[i], b[i]);
}

template <class T, class Op>
void unary(void* context) {
  unary_loop<T, Op>(*static_cast<const NativeCall*>(context));
}

template <class T, class Op>
void binary(void* context) {
  binary_loop<T, Op>(*static_cast<const NativeCall*>(context));
}

#if defined(__x86_64__)
template <class T, class Op>
[[gnu::target("avx2")]] void unary_avx2(void* context) {
  unary_loop<T, Op>(*static_cast<const NativeCall*>(context));
}

template <class T, class Op>
[[gnu::target("avx2")]] void binary_avx2(void* context) {
  binary_loop<T, Op>(*static_cast<const NativeCall*>(context));
}

template <class T, class Op>
KernelFn best_unary() {
  return __builtin_cpu_supports("avx2") ? unary_avx2<T, Op> : unary<T, Op>;
}

template <class T, class Op>
KernelFn best_binary() {
  return __builtin_cpu_supports("avx2") ? binary_avx2<T, Op> : binary<T, Op>;
}
#else
template <class T, class Op>
KernelFn best_unary() { return unary<T, Op>; }

template <class T, class Op>
KernelFn best_binary() { return binary<T, Op>; }
#endif

void copy(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  if (call.ints[0] == 0) return;  // the addresses may be null
  std::memcpy(call.operand<char>(0), call.operand<char>(1), static_cast<std::size_t>(call.ints[0]));
}

template <class T>
void add_arithmetic(std::vector<NativeKernel>& kernels, const std::string& dtype) {
  kernels.push_back({"add." + dtype, best_binary<T, Add>(), 3, 1, 0});
  kernels.push_back({"sub." + dtype, best_binary<T, Sub>(), 3, 1, 0});
  kernels.push_back({"mul." + dtype, best_binary<T, Mul>(), 3, 1, 0});
  kernels.push_back({"div." + dtype, best_binary<T, Div>(), 3, 1, 0});
  kernels.push_back({"relu." + dtype, best_unary<T, Relu>(), 2, 1, 0});
}

std::vector<NativeKernel> all_kernels() {
  std::vector<NativeKernel> kernels = {{"copy", copy, 2, 1, 0}};
  add_arithmetic<float>(kernels, "float32");
  add_arithmetic<double>(kernels, "float64");
  return kernels;
}

}  // namespace

const std::vector<NativeKernel>& native_kernels() {
  static const std::vector<NativeKernel> kernels = all_kernels();
  return kernels;
}

const NativeKernel& native_kernel(std::string_view name) {
  const auto& kernels = native_kernels();
  const auto found = std::find_if(kernels.begin(), kernels.end(),
                                  [&](const NativeKernel& kernel) { return kernel.name == name; });
  if (found != kernels.end()) return *found;
  std::string message = "there is no native kernel '" + std::string(name) + "'; there are";
  for (const NativeKernel& kernel : kernels) message += " " + kernel.name;
  throw std::invalid_argument(message);
}

}  // namespace nimble
