#include "threads.h"

#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

// torch brings these along, or does without.
extern "C" {
[[gnu::weak]] int omp_get_max_threads();
[[gnu::weak]] void omp_set_num_threads(int count);
// The lower-case name is the one for Fortran, and takes a pointer.
[[gnu::weak]] int MKL_Set_Num_Threads_Local(int count);
}

namespace nimble::aten {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

// All that stands above a backend's kernels. Some of it calls Python, which a replay must not.
constexpr DispatchKeySet kExcluded =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
    c10::python_ks | c10::functorch_transforms_ks |
    DispatchKeySet({DispatchKey::FuncTorchDynamicLayerFrontMode,
                    DispatchKey::FuncTorchDynamicLayerBackMode, DispatchKey::Functionalize,
                    DispatchKey::PreDispatch,
                    DispatchKey::Tracer});

// Without it a kernel could not allocate: it finds the backend where no argument is a tensor.
constexpr DispatchKeySet kIncluded(DispatchKey::BackendSelect);

// The register that says, among other things, whether denormal numbers are flushed to zero.
#if defined(__x86_64__)
std::uint64_t float_mode() { return _mm_getcsr(); }
void set_float_mode(std::uint64_t mode) { _mm_setcsr(static_cast<unsigned>(mode)); }
#elif defined(__aarch64__)
std::uint64_t float_mode() { return __builtin_aarch64_get_fpcr64(); }
void set_float_mode(std::uint64_t mode) { __builtin_aarch64_set_fpcr64(mode); }
#else
std::uint64_t float_mode() { return 0; }
void set_float_mode(std::uint64_t) {}
#endif

std::atomic<std::uint64_t> callers_float_mode{float_mode()};
thread_local bool is_caller = false;

struct State {
  int omp_threads;
  int mkl_threads;
  std::uint64_t float_mode;
  c10::impl::LocalDispatchKeySet keys;
  bool grad_mode, forward_grad_mode, inference_mode;
};

}  // namespace

void* enter() {
  // A thread's first ATen call that could run in parallel sets its number of threads; to let it
  // happen now keeps it from undoing what follows.
  at::get_num_threads();
  auto& autograd = c10::AutogradState::get_tls_state();
  auto* state = new State{
      .omp_threads = omp_get_max_threads ? omp_get_max_threads() : 1,
      .mkl_threads = MKL_Set_Num_Threads_Local ? MKL_Set_Num_Threads_Local(1) : 0,
      .float_mode = float_mode(),
      .keys = c10::impl::tls_local_dispatch_key_set(),
      .grad_mode = autograd.get_grad_mode(),
      .forward_grad_mode = autograd.get_fw_grad_mode(),
      .inference_mode = autograd.get_inference_mode(),
  };
  if (omp_set_num_threads) omp_set_num_threads(1);
  if (!is_caller) set_float_mode(callers_float_mode.load(std::memory_order_relaxed));
  c10::impl::PODLocalDispatchKeySet keys;
  keys.set_included(kIncluded);
  keys.set_excluded(kExcluded);
  c10::impl::_force_tls_local_dispatch_key_set(keys);
  autograd.set_grad_mode(false);
  autograd.set_fw_grad_mode(false);
  autograd.set_inference_mode(false);
  return state;
}

void leave(void* entered) {
  auto* state = static_cast<State*>(entered);
  auto& autograd = c10::AutogradState::get_tls_state();
  autograd.set_grad_mode(state->grad_mode);
  autograd.set_fw_grad_mode(state->forward_grad_mode);
  autograd.set_inference_mode(state->inference_mode);
  c10::impl::_force_tls_local_dispatch_key_set(state->keys);
  set_float_mode(state->float_mode);
  if (omp_set_num_threads) omp_set_num_threads(state->omp_threads);
  if (MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(state->mkl_threads);
  delete state;
}

void announce_caller() {
  is_caller = true;
  callers_float_mode.store(float_mode(), std::memory_order_relaxed);
}

void install_hooks(const ReplayApi& api) {
  static std::atomic<const ReplayApi*> installed{nullptr};
  if (installed.exchange(&api) != &api) api.set_thread_hooks({&enter, &leave});
}

}  // namespace nimble::aten
