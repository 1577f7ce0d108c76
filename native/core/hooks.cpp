#include "hooks.h"

#include <atomic>
#include <deque>
#include <mutex>

namespace nimble {
namespace {

std::atomic<const ThreadHooks*> current{nullptr};

}  // namespace

void set_thread_hooks(ThreadHooks hooks) {
  // Kept for ever: a thread may be between the enter and the leave of an earlier pair.
  static auto* const all = new std::deque<ThreadHooks>();
  static std::mutex mutex;
  const std::lock_guard held(mutex);
  current.store(&all->emplace_back(hooks));
}

InThreadHooks::InThreadHooks() : hooks_(current.load()) {
  if (hooks_ && hooks_->enter) entered_ = hooks_->enter();
}

InThreadHooks::~InThreadHooks() {
  if (hooks_ && hooks_->leave) hooks_->leave(entered_);
}

}  // namespace nimble
