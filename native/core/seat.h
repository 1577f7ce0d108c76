// Where one thread waits to be called.
#pragma once

#include "futex.h"

namespace nimble {

// The owner lies down, looks once more for a reason to get up, and sleeps. Whoever has a reason
// gives it before looking at `asleep`, so one of the two always notices the other. Nobody else
// clears `asleep` without ringing afterwards, or the owner could sleep on unnoticed.
class alignas(kLine) Seat {
 public:
  // For anyone.
  void ring() {
    if (ring_if_asleep()) return;  // a thread still waking up from that costs no system call again
    bell_.fetch_add(1);
    if (asleep_.load()) futex_wake(bell_, 1);
  }

  bool ring_if_asleep() {
    if (!asleep_.load() || !asleep_.exchange(false)) return false;
    bell_.fetch_add(1);
    futex_wake(bell_, 1);
    return true;
  }

  // For the owner.
  bool called() const { return bell_.load() != heard_; }
  void lie_down() { asleep_.store(true); }
  void get_up() { asleep_.store(false); }

  void sleep() {
    while (!called()) futex_wait(bell_, heard_);
    heard_ = bell_.load();
    get_up();
  }

  // For a thread that begins to use the seat while nobody else does.
  void clear() {
    heard_ = bell_.load();
    get_up();
  }

 private:
  std::atomic<std::uint32_t> bell_{0};
  std::atomic<bool> asleep_{false};
  std::uint32_t heard_ = 0;
};

}  // namespace nimble
