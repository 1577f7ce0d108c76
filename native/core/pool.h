// The process's helper threads: each pinned to a core of its own, asleep unless replaying.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <optional>

#include "seat.h"

namespace nimble {

class Tape;

class Pool {
 public:
  static constexpr std::size_t kMostWorkers = 256;

  static Pool& get();

  // How many threads a replay may use, its caller included.
  void set_workers(std::size_t workers);
  std::size_t workers();
  std::size_t size() const { return alive_.load(); }

  // Takes up to `wanted` helpers, starting those that are missing, and returns how many there are:
  // none if another replay has them.
  std::size_t take(std::size_t wanted);
  void call(Tape& tape, std::size_t helpers);
  void release();

  // The seat of thread 1, 2, ... of a replay.
  Seat& seat(std::size_t thread) { return helpers_[thread - 1].seat; }

  // Returns when no helper looks at the tape any more. No replay of it may be going on.
  void part_from(const Tape& tape);

  // In the child after fork(): the helpers stayed in the parent.
  void forget_helpers();

 private:
  struct Helper {
    Seat seat;
    // The tape it may look at, which is then not deleted. A helper that holds no stream may look
    // for a moment longer than the replay lasts, so that no caller ever waits for one to leave.
    alignas(kLine) std::atomic<Tape*> at{nullptr};
    // For whoever has taken the helpers.
    pthread_t thread{};
    int core = 0;
  };

  bool start_helper();
  // The caller is where the system put it. A helper on the same core changes to the one left over.
  void make_way(std::size_t helpers);
  void serve(std::size_t thread);
  Tape* arrive(Helper& helper);

  std::atomic<std::size_t> workers_{0};  // 0: not known yet
  std::atomic<std::size_t> alive_{0};
  std::atomic<bool> taken_{false};
  std::atomic<Tape*> tape_{nullptr};  // the one being replayed
  std::optional<int> left_over_;      // the core that no helper is on; for whoever has taken them
  std::array<Helper, kMostWorkers - 1> helpers_;
};

}  // namespace nimble
