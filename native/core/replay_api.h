// What nimble._core offers to an extension that brings kernels of its own, such as nimble._aten.
// Found in the capsule `nimble._core.replay_api`; `Tape.address` in Python is the `tape` here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nimble {

// A kernel call. Runs on any thread, one call at a time per context. May throw.
using KernelFn = void (*)(void* context);

// Called by every thread around the part of a replay that it takes.
struct ThreadHooks {
  void* (*enter)();
  void (*leave)(void* entered);
};

// What the thread that calls a replay does wherever it has to wait: a little each time, and false
// once nothing is left. Must not throw.
struct Pastime {
  bool (*go_on)(void* context);
  void* context;
};

struct ReplayApi {
  std::uint32_t version;

  void (*set_thread_hooks)(ThreadHooks hooks);

  // One caller at a time may bind and replay a tape. Safe across fork().
  void (*lock)(void* tape);
  void (*unlock)(void* tape);

  // The base address of a slot, which native kernels add their operand offsets to. Needs the lock.
  void (*set_slot)(void* tape, std::size_t slot, void* address);

  // Runs every task once; returns when all are done. Needs the lock, not the GIL. Throws what the
  // first failing kernel threw, after all threads have left the tape. `pastime` may be null, and
  // need not have come to its end.
  void (*replay)(void* tape, const Pastime* pastime);
};

inline constexpr std::uint32_t kReplayApiVersion = 2;
inline constexpr char kReplayApiCapsule[] = "nimble._core.replay_api";

}  // namespace nimble
