// Sleeping on, waking from and polling a 32-bit word. All ordering comes from the atomics.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace nimble {

// Two lines: the hardware fetches them in pairs.
inline constexpr std::size_t kLine = 128;

// Returns when woken, when the word is no longer `seen`, or for no reason: look again.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

inline void futex_wake(std::atomic<std::uint32_t>& word, int threads) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Polling in bursts, with a look at the clock after each.
class Polling {
 public:
  template <class Done>
  void burst(Done done) {
    for (int i = 0; i < kPollsPerBurst; ++i) {
      if (done()) return;
      pause();
    }
    const auto now = std::chrono::steady_clock::now();
    if (start_ == std::chrono::steady_clock::time_point()) start_ = now;
    waited_ = now - start_;
  }

  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  static constexpr int kPollsPerBurst = 16;
  std::chrono::steady_clock::time_point start_;
  std::chrono::nanoseconds waited_{0};
};

}  // namespace nimble
