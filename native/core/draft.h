// A tape while it is written: streams of steps, with waits by task. finish() lays it out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "replay_api.h"

namespace nimble {

struct Step {
  KernelFn fn;
  void* context;
  std::uint32_t task;
  std::int32_t raises;       // the flag that says this task is done, or -1 if nobody waits for it
  std::uint32_t first_wait;  // its part of Layout::waits
  std::uint32_t last_wait;
};

struct Layout {
  std::vector<Step> steps;                  // stream after stream
  std::vector<std::uint32_t> stream_ends;   // where each ends in `steps`
  std::vector<std::uint32_t> waits;         // flags
  std::vector<std::uint32_t> flag_streams;  // the stream that raises each flag
  std::vector<std::uint32_t> alone;         // all of `steps` in an order for a single thread
};

class Draft {
 public:
  Draft(std::size_t streams, std::size_t tasks) : streams_(streams), places_(tasks) {}

  void add(std::int64_t stream, std::int64_t task, KernelFn fn, void* context);
  void wait(std::int64_t stream, std::int64_t on);

  // Throws std::invalid_argument if a wait could never be satisfied.
  Layout finish() const;

 private:
  struct Entry {
    Step step;
    std::vector<std::uint32_t> waits_for;  // tasks
  };
  struct Stream {
    std::vector<Entry> entries;
    std::vector<std::uint32_t> waits_for;  // of the next task
  };
  struct Place {
    std::int64_t stream = -1;
    std::size_t position = 0;
  };

  Stream& stream_at(std::int64_t stream);
  void check_waits() const;
  std::vector<std::uint32_t> order_for_one_thread(const std::vector<std::uint32_t>& starts) const;

  std::vector<Stream> streams_;
  std::vector<Place> places_;  // by task
};

}  // namespace nimble
