// A task's op with its arguments, ready to run again and again.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <optional>
#include <vector>

#include "../core/replay_api.h"
#include "operators.h"

namespace nimble::aten {

inline constexpr auto kCpu = c10::DispatchKeySet(c10::DispatchKey::CPU);

// The context of a kernel call, and the function that runs it.
class Invocation {
 public:
  explicit Invocation(KernelFn fn) : fn(fn) {}
  Invocation(const Invocation&) = delete;
  Invocation& operator=(const Invocation&) = delete;
  virtual ~Invocation() = default;

  const KernelFn fn;
};

// What the first run of an op must not do to the tensors that it writes: move or reshape them.
class Outs {
 public:
  Outs(std::string op, std::vector<at::Tensor> tensors)
      : op_(std::move(op)), tensors_(std::move(tensors)), checked_(tensors_.empty()) {}

  template <class Run>
  void watch(Run run) {
    if (C10_LIKELY(checked_)) {
      run();
    } else {
      run_checked([](void* run) { (*static_cast<Run*>(run))(); }, &run);
    }
  }

 private:
  void run_checked(void (*run)(void*), void* context);

  std::string op_;
  std::vector<at::Tensor> tensors_;
  bool checked_;
};

// Runs an op that writes into its arguments: an out variant, or an in-place op.
std::unique_ptr<Invocation> make_direct(Prepared prepared, std::vector<at::Tensor> outs);

// Runs an op that allocates its results, and copies them: result i into `targets[i]` where defined.
std::unique_ptr<Invocation> make_copying(Prepared prepared, std::vector<at::Tensor> targets);

// As make_direct, for the commonest signatures, without boxing; null for all others.
std::unique_ptr<Invocation> make_typed(const Prepared& prepared,
                                       const std::vector<at::Tensor>& outs);

}  // namespace nimble::aten
