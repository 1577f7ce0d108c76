// What a thread's torch settings must be while it takes part in a replay.
#pragma once

#include "../core/replay_api.h"

namespace nimble::aten {

// Every kernel on one thread, below autograd and all modes; `leave` puts back what `enter` found.
void* enter();
void leave(void* entered);

// Makes the threads of the coming replay treat denormal numbers as this one, the caller's, does.
void announce_caller();

// Makes the core's workers call `enter` and `leave`.
void install_hooks(const ReplayApi& api);

struct Entered {
  Entered() : state(enter()) {}
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
  ~Entered() { leave(state); }
  void* state;
};

}  // namespace nimble::aten
