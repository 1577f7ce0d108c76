#include "replay.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "../core/without_gil.h"
#include "threads.h"

namespace nimble::aten {
// The memory of one call in its slots, from construction to destruction.
class Replay::Binding {
 public:
  Binding(Replay& replay, const std::vector<nb::object>& tensors, const std::vector<Range>& ranges,
          FreshMemory& fresh)
      : replay_(replay), tensors_(tensors), lock_(replay.lock()) {
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      bind(replay_.plan_.inputs[i].slot, reinterpret_cast<void*>(ranges[i].begin));
    }
    for (std::size_t i = 0; i < replay_.fresh_.size(); ++i) {
      bind(replay_.fresh_[i], fresh.address(i));
    }
  }
  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;

  // A replay that failed may have written, too.
  ~Binding() {
    for (const auto& input : replay_.plan_.inputs) bind(input.slot, nullptr);
    for (const std::size_t slot : replay_.fresh_) bind(slot, nullptr);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (replay_.plan_.inputs[i].mutated) bump_version(unpack(tensors_[i]));
    }
    for (const std::size_t slot : replay_.plan_.mutated) {
      if (replay_.slots_[slot].is_memory()) bump_version(replay_.slots_[slot].tensor());
    }
  }

 private:
  void bind(std::size_t slot, void* address) {
    replay_.slots_[slot].bind(address);
    replay_.plan_.api.set_slot(replay_.plan_.tape, slot, address);
  }

  Replay& replay_;
  const std::vector<nb::object>& tensors_;
  TapeLock lock_;
};

Replay::Replay(Plan plan, std::vector<Slot>& slots) : plan_(std::move(plan)), slots_(slots) {
  for (auto& input : plan_.inputs) check_input(input);
  for (const std::size_t number : plan_.mutated) {
    slot(number);
    for (auto& input : plan_.inputs) input.mutated |= input.slot == number;
  }
  for (auto& output : plan_.specs) check_output(output);
  for (const std::size_t place : plan_.outputs) {
    if (place >= plan_.specs.size()) {
      value_error(c10::str("output ", place, " of ", plan_.specs.size(), " does not exist"));
    }
  }
  install_hooks(plan_.api);
  const WithoutGil no_gil;
  const TapeLock held = lock();
  for (std::size_t number = 0; number < slots_.size(); ++number) {
    if (slots_[number].defined()) {
      plan_.api.set_slot(plan_.tape, number, slots_[number].address());
    }
  }
}

Slot& Replay::slot(std::size_t number) {
  if (number >= slots_.size() || !slots_[number].defined()) {
    value_error(c10::str("slot ", number, " is not defined"));
  }
  return slots_[number];
}

void Replay::check_input(const Input& input) {
  if (slot(input.slot).is_memory()) {
    value_error(c10::str("slot ", input.slot, " is a memory of the plan and cannot be an input"));
  }
  slot(input.slot).check(input.dtype, input.shape, input.strides, 0);
}

void Replay::check_output(Output& output) {
  const auto check_index = [&](std::size_t index) -> const Input& {
    if (index >= plan_.inputs.size()) value_error(c10::str("input ", index, " does not exist"));
    return plan_.inputs[index];
  };
  const auto check_memory = [&](std::size_t number) -> const Slot& {
    if (!slot(number).is_memory()) value_error(c10::str("slot ", number, " is no memory"));
    return slot(number);
  };
  const auto check_view = [](const Slot& slot, at::ScalarType dtype, const Strided& strided) {
    slot.check(dtype, strided.shape, strided.strides, strided.offset);
  };
  if (auto* fresh = std::get_if<Fresh>(&output)) {
    check_view(slot(fresh->slot), fresh->dtype, fresh->strided);
    if (slot(fresh->slot).is_memory() ||
        std::ranges::any_of(plan_.inputs,
                            [&](const Input& input) { return input.slot == fresh->slot; })) {
      value_error(c10::str("slot ", fresh->slot, " has a memory and cannot be allocated anew"));
    }
    const auto found = std::ranges::find(fresh_, fresh->slot);
    fresh->place = static_cast<std::size_t>(found - fresh_.begin());
    if (found == fresh_.end()) fresh_.push_back(fresh->slot);
  } else if (const auto* passed = std::get_if<Passed>(&output)) {
    check_index(passed->index);
  } else if (const auto* view = std::get_if<PassedView>(&output)) {
    const Input& input = check_index(view->index);
    check_view(slot(input.slot), input.dtype, view->strided);
  } else if (const auto* kept = std::get_if<Kept>(&output)) {
    check_memory(kept->slot);
  } else if (const auto* view = std::get_if<KeptView>(&output)) {
    const Slot& memory = check_memory(view->slot);
    check_view(memory, memory.tensor().scalar_type(), view->strided);
  }
}

nb::list Replay::operator()(nb::handle tensors, const Watch* watch) {
  const std::vector<nb::object> passed = checked(tensors);
  FreshMemory fresh = allocate();
  run(passed, fresh, watch);
  return hand_out_all(passed, fresh);
}

Bound Replay::bind(nb::handle tensors) { return {*this, checked(tensors)}; }

FreshMemory Replay::allocate() const {
  FreshMemory fresh;
  fresh.reserve(fresh_.size());
  for (const std::size_t number : fresh_) fresh.allocate(slots_[number].nbytes());
  return fresh;
}

void Replay::run_now(const std::vector<nb::object>& tensors, FreshMemory& fresh,
                     const Pastime* pastime) {
  const std::vector<Range> ranges = addresses(tensors);
  if (!plan_.mutated.empty()) check_overlaps(plan_.inputs, ranges, slots_, plan_.mutated);
  const WithoutGil no_gil;
  announce_caller();
  const Binding binding(*this, tensors, ranges, fresh);
  plan_.api.replay(plan_.tape, pastime);
}

// Weights that were changed have been copied, and a replay on the copies does no harm: it is made
// again with the new ones. So the look at them is taken where the replay waits.
void Replay::run(const std::vector<nb::object>& tensors, FreshMemory& fresh, const Watch* watch) {
  if (watch && (plan_.repeatable ? watch->changed_before() : watch->changed())) throw Changed();
  if (!watch || !plan_.repeatable) return run_now(tensors, fresh, nullptr);
  Watch::Round round(*watch);
  const Pastime pastime{[](void* context) { return static_cast<Watch::Round*>(context)->go_on(); },
                        &round};
  try {
    run_now(tensors, fresh, &pastime);
  } catch (...) {
    if (round.changed()) throw Changed();  // it may have failed for what is no longer there
    throw;
  }
  if (round.changed()) throw Changed();
}

Bound::Bound(Replay& replay, std::vector<nb::object> tensors)
    : replay_(replay), tensors_(std::move(tensors)), fresh_(replay.allocate()),
      outputs_(replay.hand_out_all(tensors_, fresh_)) {}

void Bound::run(const Watch* watch) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) check(tensors_[i], replay_.plan_.inputs[i], i);
  if (!fresh_.write_again()) {
    raise_mismatch(tensors_.size(), "was given other memory or another shape since bind()");
  }
  for (std::size_t i = 0; const Range& range : replay_.addresses(tensors_)) {
    if (fresh_.overlaps(range)) raise_mismatch(i, "shares memory with a result of bind()");
    ++i;
  }
  if (kept_ != replay_.kept_) {
    kept_ = replay_.kept_;
    if (std::ranges::any_of(replay_.slots_, [&](const Slot& slot) {
          return slot.is_memory() && fresh_.overlaps(slot.range());
        })) {
      kept_ = 0;
      raise_mismatch(tensors_.size(), "is now the memory of a parameter or state of the model");
    }
  }
  replay_.run(tensors_, fresh_, watch);
}

std::vector<nb::object> Replay::checked(nb::handle tensors) const {
  const auto items = nb::steal(PySequence_Fast(tensors.ptr(), "replay takes a list of tensors"));
  if (!items.is_valid()) throw nb::python_error();
  const auto count = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(items.ptr()));
  if (count != plan_.inputs.size()) {
    raise_mismatch(std::min(count, plan_.inputs.size()),
                   c10::str("is missing or too many: expected ", plan_.inputs.size(),
                            " tensors, got ", count));
  }
  std::vector<nb::object> passed;
  passed.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    passed.push_back(nb::borrow(PySequence_Fast_GET_ITEM(items.ptr(), i)));
    check(passed.back(), plan_.inputs[i], i);
  }
  return passed;
}

std::vector<Range> Replay::addresses(const std::vector<nb::object>& tensors) const {
  std::vector<Range> ranges;
  ranges.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = unpack(tensors[i]);
    if (!holds(tensor, slots_[plan_.inputs[i].slot].nbytes())) {
      raise_mismatch(i, "has a storage of fewer bytes than its shape needs");
    }
    const auto begin = reinterpret_cast<std::uintptr_t>(
        plan_.inputs[i].mutated ? tensor.mutable_data_ptr() : tensor.const_data_ptr());
    ranges.push_back({begin, begin + slots_[plan_.inputs[i].slot].nbytes()});
  }
  return ranges;
}

nb::list Replay::hand_out_all(const std::vector<nb::object>& tensors, FreshMemory& fresh) {
  std::vector<nb::object> made;
  made.reserve(plan_.specs.size());
  for (const auto& spec : plan_.specs) made.push_back(hand_out(spec, tensors, slots_, fresh));
  nb::list outputs;
  for (const std::size_t place : plan_.outputs) outputs.append(made[place]);
  return outputs;
}

void Replay::keep(std::size_t number, Memory& memory) {
  const WithoutGil no_gil;
  const TapeLock held = lock();
  slots_[number].keep(memory);
  ++kept_;
  plan_.api.set_slot(plan_.tape, number, slots_[number].address());
}

}  // namespace nimble::aten
