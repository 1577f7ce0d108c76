#include "tape.h"

#include <stdexcept>
#include <string>

#include "fork_gate.h"
#include "pool.h"

namespace nimble {
namespace {

std::size_t checked_count(const char* what, std::int64_t count, std::int64_t least) {
  if (count < least) {
    throw std::invalid_argument("a tape cannot have " + std::to_string(count) + " " + what);
  }
  return static_cast<std::size_t>(count);
}

}  // namespace

Tape::Tape(std::int64_t streams, std::int64_t tasks, std::int64_t slots)
    : draft_(std::in_place, checked_count("streams", streams, 1), checked_count("tasks", tasks, 0)),
      slots_(checked_count("slots", slots, 0)),
      used_(slots_.size()),
      bound_(slots_.size()) {}

Tape::~Tape() { Pool::get().part_from(*this); }

Draft& Tape::draft() {
  if (!draft_) throw std::invalid_argument("the tape is finished: nothing can be added to it");
  return *draft_;
}

void Tape::call(std::int64_t stream, std::int64_t task, KernelFn fn, void* context) {
  if (!fn) throw std::invalid_argument("task " + std::to_string(task) + " has a null kernel");
  draft().add(stream, task, fn, context);
}

void Tape::native(std::int64_t stream, std::int64_t task, std::string_view kernel,
                  const std::vector<std::pair<std::int64_t, std::int64_t>>& operands,
                  const std::vector<std::int64_t>& ints, const std::vector<double>& floats) {
  const NativeKernel& found = native_kernel(kernel);
  OwnedCall owned;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto [slot, offset] = operands[i];
    if (slot < 0 || static_cast<std::size_t>(slot) >= slots_.size() || offset < 0) {
      throw std::invalid_argument("operand " + std::to_string(i) + " of task " +
                                  std::to_string(task) + " is at slot " + std::to_string(slot) +
                                  ", offset " + std::to_string(offset) + ": the tape has " +
                                  std::to_string(slots_.size()) + " slots");
    }
    owned.operands.push_back({static_cast<std::size_t>(slot), static_cast<std::size_t>(offset)});
  }
  owned.plan = found.parse({kernel, owned.operands, ints, floats});
  owned.call = {slots_.data(), owned.operands.data(), owned.plan.get()};
  native_calls_.push_back(std::move(owned));  // the vector's elements stay where they are
  draft().add(stream, task, found.fn, &native_calls_.back().call);
  for (const auto& [slot, offset] : operands) used_[static_cast<std::size_t>(slot)] = true;
}

void Tape::wait(std::int64_t stream, std::int64_t on) { draft().wait(stream, on); }

void Tape::finish() {
  layout = draft().finish();
  flags = std::vector<Flag>(layout.flag_streams.size());
  for (std::size_t i = 0; i < flags.size(); ++i) flags[i].stream = layout.flag_streams[i];
  streams = std::vector<Stream>(layout.stream_ends.size());
  const Step* first = layout.steps.data();
  for (std::size_t i = 0; i < streams.size(); ++i) {
    streams[i].first = first;
    streams[i].end = layout.steps.data() + layout.stream_ends[i];
    if (streams[i].first != streams[i].end) ++width;
    first = streams[i].end;
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) unbound_ += used_[i] && !bound_[i];
  draft_.reset();
}

void Tape::lock() {
  fork_gate::enter();
  mutex_.lock();
}

void Tape::unlock() {
  mutex_.unlock();
  fork_gate::leave();
}

void Tape::set_slot(std::int64_t slot, void* address) {
  if (slot < 0 || static_cast<std::size_t>(slot) >= slots_.size()) {
    throw std::out_of_range("slot " + std::to_string(slot) + " is out of range: the tape has " +
                            std::to_string(slots_.size()));
  }
  const auto index = static_cast<std::size_t>(slot);
  slots_[index] = address;
  if (bound_[index]) return;
  bound_[index] = true;
  if (!draft_ && used_[index]) --unbound_;
}

void Tape::check_replayable() const {
  if (draft_) throw std::runtime_error("the tape is not finished: call finish() first");
  if (unbound_ == 0) return;
  std::size_t slot = 0;
  while (!used_[slot] || bound_[slot]) ++slot;
  throw std::runtime_error("slot " + std::to_string(slot) +
                           " is used by a native kernel and has no address: call set_slot() first");
}

}  // namespace nimble
