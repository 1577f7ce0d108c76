// One replay: check the inputs, bind them, run the tape, hand out the outputs.
#pragma once

#include <vector>

#include "../core/replay_api.h"
#include "inputs.h"
#include "memory.h"
#include "outputs.h"
#include "watch.h"

namespace nimble::aten {

// Holds the tape. Not to be had with the GIL held, nor the other way round: a kernel may need both.
class TapeLock {
 public:
  TapeLock(const ReplayApi& api, void* tape) : api_(api), tape_(tape) { api_.lock(tape_); }
  TapeLock(const TapeLock&) = delete;
  TapeLock& operator=(const TapeLock&) = delete;
  ~TapeLock() { api_.unlock(tape_); }

 private:
  const ReplayApi& api_;
  void* tape_;
};

struct Plan {
  const ReplayApi& api;
  void* tape;
  std::vector<Input> inputs;
  std::vector<Output> specs;
  std::vector<std::size_t> outputs;  // places in `specs`
  std::vector<std::size_t> mutated;  // slots
  bool repeatable;                   // a replay leaves nothing behind that another would notice
};

// Inputs and results that stay where they are from one replay to the next.
class Bound;

class Replay {
 public:
  // Throws ValueError where the plan does not fit the slots.
  Replay(Plan plan, std::vector<Slot>& slots);

  // Raises Changed where a watch is given and has noticed something.
  nb::list operator()(nb::handle tensors, const Watch* watch);
  Bound bind(nb::handle tensors);
  // Replaces the memory of a slot; `memory` is then the one before.
  void keep(std::size_t slot, Memory& memory);
  TapeLock lock() const { return TapeLock(plan_.api, plan_.tape); }

 private:
  class Binding;

  Slot& slot(std::size_t number);
  void check_input(const Input& input);
  void check_output(Output& output);
  std::vector<nb::object> checked(nb::handle tensors) const;
  std::vector<Range> addresses(const std::vector<nb::object>& tensors) const;
  nb::list hand_out_all(const std::vector<nb::object>& tensors, FreshMemory& fresh);

  FreshMemory allocate() const;
  void run(const std::vector<nb::object>& tensors, FreshMemory& fresh, const Watch* watch);
  void run_now(const std::vector<nb::object>& tensors, FreshMemory& fresh, const Pastime* pastime);
  friend Bound;

  Plan plan_;
  std::vector<Slot>& slots_;
  std::vector<std::size_t> fresh_;  // slots that are allocated at every call
  std::size_t kept_ = 1;            // another number whenever a memory was replaced
};

class Bound {
 public:
  Bound(Replay& replay, std::vector<nb::object> tensors);
  nb::list outputs() const { return outputs_; }
  // Looks at the inputs again: they may have been given other memory since. When
  // Changed is raised, the outputs are of no use.
  void run(const Watch* watch);

 private:
  Replay& replay_;
  std::vector<nb::object> tensors_;
  FreshMemory fresh_;
  nb::list outputs_;
  std::size_t kept_ = 0;  // that of the replay at the last look
};

}  // namespace nimble::aten
