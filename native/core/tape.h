// A tape: streams of steps laid out for replay, and where the replay that is going on has come to.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "draft.h"
#include "futex.h"
#include "kernels.h"
#include "seat.h"

namespace nimble {

// Raised when `epoch` is that of the replay, so that nothing needs to be reset between replays.
struct alignas(kLine) Flag {
  std::atomic<std::uint32_t> epoch{0};
  std::uint32_t stream = 0;  // the one that raises it
};

// Only the thread that changed `state` to kHeld may touch `next`.
struct alignas(kLine) Stream {
  static constexpr std::int32_t kFresh = -1;
  static constexpr std::int32_t kHeld = -2;
  static constexpr std::int32_t kEnded = -3;

  std::atomic<std::int32_t> state{kEnded};  // one of these, or the flag it is parked at
  const Step* next = nullptr;
  const Step* first = nullptr;
  const Step* end = nullptr;
};

// When and by which thread a task was run, by the steady clock.
struct Span {
  std::uint32_t task;
  std::uint32_t thread;
  std::int64_t start_ns;
  std::int64_t stop_ns;
};

// A native call and what it points to.
struct OwnedCall {
  NativeCall call;
  std::vector<Operand> operands;
  std::shared_ptr<const void> plan;
};

class Tape {
 public:
  Tape(std::int64_t streams, std::int64_t tasks, std::int64_t slots);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  void call(std::int64_t stream, std::int64_t task, KernelFn fn, void* context);
  void native(std::int64_t stream, std::int64_t task, std::string_view kernel,
              const std::vector<std::pair<std::int64_t, std::int64_t>>& operands,
              const std::vector<std::int64_t>& ints, const std::vector<double>& floats);
  void wait(std::int64_t stream, std::int64_t on);
  void finish();

  // To bind slots, replay, and look at the outcome. Never wait for the GIL while holding it.
  void lock();
  void unlock();

  void set_slot(std::int64_t slot, void* address);
  void check_replayable() const;

  // Fixed by finish().
  Layout layout;
  std::size_t width = 0;  // streams that have tasks

  // Written by the caller between replays.
  const Pastime* pastime = nullptr;    // of the thread that calls the replay
  std::vector<Span>* spans = nullptr;  // by step; null unless times are wanted
  std::size_t threads = 1;
  std::vector<Span> recorded;  // of the last replay while times were kept
  std::int64_t lasted_ns = 0;  // that replay, from its beginning to its end

  // The outcome. `error` belongs to whoever set `failed` first.
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  std::optional<std::uint32_t> failed_task;

  // Where the replay has come to, when several threads take part.
  std::atomic<std::uint32_t> epoch{0};
  std::vector<Stream> streams;
  std::vector<Flag> flags;
  alignas(kLine) std::atomic<std::size_t> unfinished{0};  // streams
  alignas(kLine) std::atomic<bool> any_slept{false};      // of its threads
  Seat caller;

 private:
  Draft& draft();

  std::optional<Draft> draft_;
  std::deque<OwnedCall> native_calls_;  // stays where it is: the draft has its addresses
  std::vector<void*> slots_;
  std::vector<bool> used_, bound_;  // slots
  std::size_t unbound_ = 0;         // slots used and not bound
  std::mutex mutex_;
};

}  // namespace nimble
