#include "fork_gate.h"

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "futex.h"
#include "pool.h"

namespace nimble::fork_gate {
namespace {

std::atomic<std::uint32_t> inside{0};  // threads
std::atomic<std::uint32_t> closed{0};
std::mutex closing;  // one fork() at a time

thread_local std::uint32_t entered = 0;
thread_local std::uint32_t closed_here = 0;

void open_in_child() {
  Pool::get().forget_helpers();
  inside.store(entered > 0);
  open();
}

[[maybe_unused]] const int registered = pthread_atfork(close, open, open_in_child);

}  // namespace

void enter() {
  if (entered > 0) {
    ++entered;
    return;
  }
  for (;;) {
    ++entered;
    inside.fetch_add(1);
    if (closed.load() == 0 || closed_here > 0) return;
    leave();
    futex_wait(closed, 1);
  }
}

void leave() {
  if (--entered > 0) return;
  inside.fetch_sub(1);
  if (closed.load() != 0) futex_wake(inside, 1);
}

void close() {
  if (closed_here++ > 0) return;
  closing.lock();
  closed.store(1);
  const std::uint32_t this_thread = entered > 0;
  for (std::uint32_t n; (n = inside.load()) > this_thread;) futex_wait(inside, n);
}

void open() {
  if (--closed_here > 0) return;
  closed.store(0);
  futex_wake(closed, INT32_MAX);
  closing.unlock();
}

}  // namespace nimble::fork_gate
