#include "replay.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "futex.h"
#include "hooks.h"
#include "pool.h"

namespace nimble {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

// How long a thread waits for its own stream alone, while the one that holds it up is being run.
constexpr microseconds kPatience{5};
// How often a thread looks again before it parks its stream: about a microsecond.
constexpr int kLooks = 64;
// How long it polls for anything to do before it sleeps.
constexpr microseconds kPolling{50};

std::int64_t now_ns() {
  return std::chrono::nanoseconds(steady_clock::now().time_since_epoch()).count();
}

void execute(Tape& tape, const Step& step, std::size_t thread) {
  if (tape.failed.load(std::memory_order_relaxed)) return;
  try {
    if (tape.spans) {
      const std::int64_t start = now_ns();
      step.fn(step.context);
      const auto index = static_cast<std::size_t>(&step - tape.layout.steps.data());
      (*tape.spans)[index] = {step.task, static_cast<std::uint32_t>(thread), start, now_ns()};
    } else {
      step.fn(step.context);
    }
  } catch (...) {
    if (tape.failed.exchange(true)) return;
    tape.error = std::current_exception();
    tape.failed_task = step.task;
  }
}

bool raised(const Tape& tape, std::size_t flag) {
  return tape.flags[flag].epoch.load() == tape.epoch.load(std::memory_order_relaxed);
}

// A sleeper for every stream that the flag has made ready.
void wake_for(Tape& tape, std::int32_t flag) {
  auto ready = std::count_if(tape.streams.begin(), tape.streams.end(),
                             [&](const Stream& stream) { return stream.state.load() == flag; });
  for (std::size_t thread = 0; ready > 0 && thread < tape.threads; ++thread) {
    Seat& seat = thread == 0 ? tape.caller : Pool::get().seat(thread);
    if (seat.ring_if_asleep()) --ready;
  }
}

void raise(Tape& tape, std::int32_t flag) {
  // A full barrier, or a thread about to sleep and this one could miss each other.
  tape.flags[static_cast<std::size_t>(flag)].epoch.exchange(tape.epoch.load());
  if (tape.any_slept.load()) wake_for(tape, flag);
}

bool pass_time(const Tape& tape) {
  return tape.pastime && tape.pastime->go_on(tape.pastime->context);
}

// Whether a flag is raised within so short a time that to park the stream, which other threads look
// at, would take longer than the wait.
bool comes_soon(const Tape& tape, std::size_t flag, std::size_t thread) {
  const Stream& other = tape.streams[tape.flags[flag].stream];
  if (other.state.load() != Stream::kHeld) return raised(tape, flag);
  for (int look = 0; look < kLooks; ++look) {
    if (raised(tape, flag)) return true;
    if (thread != 0 || !pass_time(tape)) pause();
  }
  return false;
}

// Runs a stream that this thread holds until it has to wait or ends, and lets go of it.
void run(Tape& tape, Stream& stream, std::size_t thread) {
  const std::uint32_t* const waits = tape.layout.waits.data();
  for (const Step* step = stream.next; step != stream.end; ++step) {
    for (std::uint32_t i = step->first_wait; i < step->last_wait; ++i) {
      if (raised(tape, waits[i]) || comes_soon(tape, waits[i], thread)) continue;
      stream.next = step;
      stream.state.store(static_cast<std::int32_t>(waits[i]));
      return;
    }
    execute(tape, *step, thread);
    if (step->raises >= 0) raise(tape, step->raises);
  }
  stream.state.store(Stream::kEnded, std::memory_order_relaxed);
  if (tape.unfinished.fetch_sub(1) == 1 && thread != 0) tape.caller.ring_if_asleep();
}

bool ready(const Tape& tape, std::int32_t state) {
  return state == Stream::kFresh || (state >= 0 && raised(tape, static_cast<std::size_t>(state)));
}

bool try_hold(const Tape& tape, Stream& stream) {
  std::int32_t state = stream.state.load();
  return ready(tape, state) && stream.state.compare_exchange_strong(state, Stream::kHeld);
}

// The stream that would have to go on before this one can; null if it is not parked.
Stream* holding_up(Tape& tape, const Stream& stream) {
  const std::int32_t state = stream.state.load();
  if (state < 0) return nullptr;
  return &tape.streams[tape.flags[static_cast<std::size_t>(state)].stream];
}

// A stream for this thread to run, which it then holds: its own, else what holds that up, else any.
Stream* find_ready(Tape& tape, Stream& own, bool patient) {
  if (try_hold(tape, own)) return &own;
  Stream* other = holding_up(tape, own);
  if (patient && other && other->state.load() == Stream::kHeld) return nullptr;
  for (; other; other = holding_up(tape, *other)) {
    if (try_hold(tape, *other)) return other;
  }
  for (Stream& stream : tape.streams) {
    if (try_hold(tape, stream)) return &stream;
  }
  return nullptr;
}

// A helper may still be here from the last replay and join in as soon as one stream is fresh.
void make_ready(Tape& tape, std::size_t threads) {
  tape.threads = threads;
  tape.epoch.fetch_add(1);
  tape.any_slept.store(false);
  tape.unfinished.store(tape.streams.size());
  for (Stream& stream : tape.streams) {
    stream.next = stream.first;
    stream.state.store(Stream::kFresh, std::memory_order_release);
  }
}

std::size_t take_helpers(const Tape& tape) {
  if (tape.width <= 1) return 0;
  Pool& pool = Pool::get();
  const std::size_t threads = std::min(tape.width, pool.workers());
  return threads > 1 ? pool.take(threads - 1) : 0;
}

void replay_alone(Tape& tape) {
  for (const std::uint32_t step : tape.layout.alone) execute(tape, tape.layout.steps[step], 0);
}

void replay_together(Tape& tape, std::size_t helpers) {
  make_ready(tape, helpers + 1);
  Pool::get().call(tape, helpers);
  while (!take_part(tape, 0, tape.caller)) tape.caller.sleep();
  Pool::get().release();
}

}  // namespace

bool take_part(Tape& tape, std::size_t thread, Seat& seat) {
  Stream* own = &tape.streams[thread % tape.streams.size()];
  for (Polling polling;;) {
    const bool tired = polling.waited() >= kPolling;
    if (tired) {  // lies down before it looks for the last time: see Seat
      seat.lie_down();
      tape.any_slept.store(true);
    }
    Stream* const stream = find_ready(tape, *own, polling.waited() < kPatience);
    const bool all_ended = !stream && tape.unfinished.load() == 0;
    if (tired && !stream && !all_ended) return false;
    if (tired) seat.get_up();
    if (all_ended) return true;
    if (stream) {
      run(tape, *stream, thread);
      own = stream;
      polling = Polling();
    } else if (thread != 0 || !pass_time(tape)) {
      polling.burst([&] { return ready(tape, own->state.load()); });
    }
  }
}

void replay(Tape& tape, const Pastime* pastime) {
  tape.check_replayable();
  tape.pastime = pastime;
  tape.failed.store(false);
  tape.failed_task.reset();
  const std::int64_t start = tape.spans ? now_ns() : 0;
  {
    const InThreadHooks hooks;
    if (const std::size_t helpers = take_helpers(tape)) {
      replay_together(tape, helpers);
    } else {
      replay_alone(tape);
    }
  }
  if (tape.spans) tape.lasted_ns = now_ns() - start;
  if (tape.error) std::rethrow_exception(std::exchange(tape.error, nullptr));
}

std::vector<Span> record(Tape& tape) {
  keep_times(tape, true);
  try {
    replay(tape);
  } catch (...) {
    keep_times(tape, false);
    throw;
  }
  keep_times(tape, false);
  return in_order(tape.recorded);
}

void keep_times(Tape& tape, bool on) {
  if (on) tape.recorded.assign(tape.layout.steps.size(), Span{});
  tape.spans = on ? &tape.recorded : nullptr;
}

std::vector<Span> in_order(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.start_ns < b.start_ns; });
  return spans;
}

}  // namespace nimble
