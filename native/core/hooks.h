// The thread hooks that an extension has set, called around every thread's part of a replay.
#pragma once

#include "replay_api.h"

namespace nimble {

void set_thread_hooks(ThreadHooks hooks);

class InThreadHooks {
 public:
  InThreadHooks();
  ~InThreadHooks();
  InThreadHooks(const InThreadHooks&) = delete;
  InThreadHooks& operator=(const InThreadHooks&) = delete;

 private:
  const ThreadHooks* hooks_;
  void* entered_ = nullptr;
};

}  // namespace nimble
