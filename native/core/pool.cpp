#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cores.h"
#include "hooks.h"
#include "replay.h"

namespace nimble {
namespace {

// How long a helper polls for the next replay before it sleeps: waking it costs about as much.
constexpr std::chrono::microseconds kLinger{100};

void pin(pthread_t thread, int core) {
  cpu_set_t* set = CPU_ALLOC(core + 1);
  const std::size_t bytes = CPU_ALLOC_SIZE(core + 1);
  CPU_ZERO_S(bytes, set);
  CPU_SET_S(core, bytes, set);
  pthread_setaffinity_np(thread, bytes, set);  // if refused, it runs anywhere
  CPU_FREE(set);
}

// Signals are for the program's own threads, save those that a thread brings on itself.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&blocked, own);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

Pool& Pool::get() {
  // Never destroyed: detached helpers use it until the process is gone.
  static Pool* const pool = new Pool();
  return *pool;
}

void Pool::set_workers(std::size_t workers) {
  if (workers < 1 || workers > kMostWorkers) {
    throw std::invalid_argument("the number of workers is " + std::to_string(workers) +
                                "; it must be from 1 to " + std::to_string(kMostWorkers));
  }
  workers_.store(workers);
}

std::size_t Pool::workers() {
  if (workers_.load() == 0) {
    const auto cores = static_cast<std::size_t>(usable_cores());
    std::size_t unknown = 0;
    workers_.compare_exchange_strong(unknown, std::min(cores, kMostWorkers));
  }
  return workers_.load();
}

std::size_t Pool::take(std::size_t wanted) {
  if (taken_.exchange(true)) return 0;
  while (size() < wanted && start_helper()) continue;
  const std::size_t helpers = std::min(size(), wanted);
  if (helpers == 0) taken_.store(false);
  return helpers;
}

void Pool::call(Tape& tape, std::size_t helpers) {
  make_way(helpers);
  tape_.store(&tape);
  for (std::size_t i = 0; i < helpers; ++i) helpers_[i].seat.ring();
}

void Pool::release() {
  tape_.store(nullptr);
  taken_.store(false);
}

bool Pool::start_helper() {
  const std::size_t thread = size() + 1;
  const std::vector<int> cores = allowed_cores();
  if (thread == 1) left_over_ = cores[0];
  if (thread >= cores.size()) left_over_.reset();
  Helper& helper = helpers_[thread - 1];
  helper.seat.clear();
  try {
    const SignalsBlocked blocked;
    std::thread started(&Pool::serve, this, thread);
    helper.thread = started.native_handle();
    helper.core = cores[thread % cores.size()];
    pin(helper.thread, helper.core);
    started.detach();
  } catch (const std::system_error&) {
    return false;  // no thread to be had: the others do its part
  }
  alive_.store(thread);
  return true;
}

void Pool::make_way(std::size_t helpers) {
  const int here = sched_getcpu();
  for (std::size_t i = 0; left_over_ && i < helpers; ++i) {
    if (helpers_[i].core != here) continue;
    std::swap(helpers_[i].core, *left_over_);
    pin(helpers_[i].thread, helpers_[i].core);
    return;
  }
}

void Pool::serve(std::size_t thread) {
  Helper& helper = helpers_[thread - 1];
  bool lies_down = false;
  for (;;) {
    if (!lies_down) {
      const auto called = [&] { return helper.seat.called(); };
      for (Polling polling; !called() && polling.waited() < kLinger;) polling.burst(called);
      helper.seat.lie_down();
    }
    helper.seat.sleep();
    lies_down = false;
    if (Tape* tape = arrive(helper)) {
      const InThreadHooks hooks;
      lies_down = !take_part(*tape, thread, helper.seat);
      helper.at.store(nullptr);
    }
  }
}

Tape* Pool::arrive(Helper& helper) {
  for (Tape* tape = tape_.load();;) {
    helper.at.store(tape);
    Tape* const now = tape_.load();  // it may have been deleted just before `at` was set
    if (now == tape) return tape;
    tape = now;
  }
}

void Pool::part_from(const Tape& tape) {
  for (std::size_t i = 0; i < size(); ++i) {
    while (helpers_[i].at.load() == &tape) std::this_thread::yield();
  }
}

void Pool::forget_helpers() {
  for (std::size_t i = 0; i < size(); ++i) helpers_[i].at.store(nullptr);
  alive_.store(0);
  taken_.store(false);
  tape_.store(nullptr);
}

}  // namespace nimble
