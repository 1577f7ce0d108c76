#include "table.h"

#include <ATen/MemoryOverlap.h>
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "operators.h"
#include "../core/without_gil.h"
#include "threads.h"

namespace nimble::aten {
namespace {

std::vector<at::Tensor> mutated(const Prepared& prepared) {
  std::vector<at::Tensor> tensors;
  const auto& declared = prepared.op.schema().arguments();
  for (std::size_t i = 0; i < declared.size(); ++i) {
    if (declared[i].alias_info() == nullptr || !declared[i].alias_info()->isWrite()) continue;
    const auto& argument = prepared.arguments[i];
    if (argument.isTensor()) tensors.push_back(argument.toTensor());
    if (argument.isTensorList()) {
      for (const at::Tensor& tensor : argument.toTensorVector()) tensors.push_back(tensor);
    }
  }
  return tensors;
}

// The op's results, as far as the schema says: the length of a list is known only after a run.
void check_results(const c10::OperatorHandle& op, std::size_t given) {
  std::size_t tensors = 0;
  for (const auto& result : op.schema().returns()) {
    if (result.type()->kind() == c10::TypeKind::ListType) return;
    tensors += result.type()->kind() == c10::TypeKind::TensorType;
  }
  if (given != tensors) {
    value_error(c10::str(op.operator_name(), " has ", tensors, " results, got ", given));
  }
}

}  // namespace

Table::Table(std::size_t slots, std::size_t values) : slots_(slots), values_(values) {}

void Table::define(std::size_t number, Slot slot) {
  if (number >= slots_.size()) {
    value_error(c10::str("slot ", number, " is beyond the ", slots_.size(), " of the table"));
  }
  if (slots_[number].defined()) value_error(c10::str("slot ", number, " is already defined"));
  slots_[number] = std::move(slot);
}

Slot& Table::slot(std::size_t number) {
  if (number >= slots_.size() || !slots_[number].defined()) {
    value_error(c10::str("slot ", number, " is not defined"));
  }
  return slots_[number];
}

void Table::storage(std::size_t number, std::size_t nbytes) { define(number, Slot(nbytes)); }

void Table::memory(std::size_t number, const at::Tensor& tensor) {
  if (!is_plain(tensor)) value_error(c10::str("slot ", number, ": no ordinary CPU tensor"));
  const std::size_t nbytes = span(tensor);
  const bool known = number < slots_.size() && slots_[number].is_memory();
  if (!known) define(number, Slot(nbytes));
  if (slots_[number].nbytes() != nbytes) {
    value_error(c10::str("slot ", number, " has ", slots_[number].nbytes(),
                         " bytes, the tensor that replaces its own ", nbytes));
  }
  if (!holds(tensor, nbytes)) {
    value_error(c10::str("slot ", number, ": the tensor's storage has fewer bytes than its shape needs"));
  }
  Memory memory(tensor);
  if (replay_) {
    replay_->keep(number, memory);
  } else {
    slots_[number].keep(memory);
  }
}

void Table::value(std::size_t id, std::size_t number, at::ScalarType dtype, const Ints& shape,
                  const Ints& strides, std::size_t offset) {
  if (id >= values_.size()) {
    value_error(c10::str("value ", id, " is beyond the ", values_.size(), " of the table"));
  }
  if (values_[id].defined()) value_error(c10::str("value ", id, " is already defined"));
  const Entered entered;
  values_[id] = slot(number).value(dtype, shape, strides, offset);
}

at::Tensor Table::result(const c10::OperatorHandle& op, std::size_t id) const {
  if (id >= values_.size() || !values_[id].defined()) {
    value_error(c10::str(op.operator_name(), ": result ", id, " is no defined value"));
  }
  if (at::has_internal_overlap(values_[id]) == at::MemOverlap::Yes) {
    value_error(c10::str(op.operator_name(), ": result ", id, " with strides ",
                         values_[id].strides(), " has elements that share memory"));
  }
  return values_[id];
}

Call Table::call(const std::string& name, const std::string& overload, nb::list args,
                 nb::dict kwargs, const std::vector<std::optional<std::size_t>>& results,
                 const std::vector<std::size_t>& unused) {
  const Entered entered;
  const c10::OperatorHandle op = find_operator(name, overload);
  Prepared prepared{op, convert(op.schema(), args, kwargs, values_)};
  std::vector<at::Tensor> targets;
  std::string kind = "inplace";
  std::unique_ptr<Invocation> invocation;
  for (const auto& id : results) targets.push_back(id ? result(op, *id) : at::Tensor());
  const bool all = std::ranges::all_of(targets, [](const auto& made) { return made.defined(); });
  if (!results.empty()) check_results(op, results.size());
  if (results.empty()) {
    auto written = mutated(prepared);
    if (written.empty()) {
      value_error(c10::str(op.operator_name(), " writes none of its arguments and has no result"));
    }
    invocation = make_direct(prepared, std::move(written));
  } else if (auto direct = all ? in_place(op, prepared.arguments, targets) : std::nullopt) {
    kind = "out";
    prepared = *std::move(direct);
    invocation = make_direct(prepared, targets);
  } else {
    kind = "copy";
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i] && std::ranges::count(unused, *results[i])) targets[i] = at::Tensor();
    }
    invocation = make_copying(prepared, std::move(targets));
  }
  invocations_.push_back(std::move(invocation));
  const auto& made = *invocations_.back();
  return {reinterpret_cast<std::uintptr_t>(made.fn), reinterpret_cast<std::uintptr_t>(&made),
          std::move(kind), c10::toString(prepared.op.operator_name())};
}

void Table::run(const std::vector<const Call*>& calls) {
  if (replay_) value_error("the table has a plan: replay it");
  for (std::size_t number = 0; number < slots_.size(); ++number) {
    if (slots_[number].defined() && !slots_[number].is_memory()) {
      value_error(c10::str("slot ", number, " is bound only while a plan replays"));
    }
  }
  const WithoutGil no_gil;
  const std::lock_guard alone(running_);
  announce_caller();
  const Entered entered;
  for (const Call* call : calls) {
    reinterpret_cast<KernelFn>(call->fn)(reinterpret_cast<void*>(call->context));
  }
}

void Table::plan(std::uintptr_t tape, const ReplayApi& api, std::vector<Input> inputs,
                 std::vector<Output> specs, std::vector<std::size_t> outputs,
                 const std::vector<std::size_t>& mutated, bool repeatable) {
  if (replay_) value_error("the table already has a plan");
  replay_ = std::make_unique<Replay>(
      Plan{api, reinterpret_cast<void*>(tape), std::move(inputs), std::move(specs),
           std::move(outputs), mutated, repeatable},
      slots_);
}

nb::list Table::replay(nb::handle tensors, const Watch* watch) {
  if (!replay_) value_error("the table has no plan yet");
  return (*replay_)(tensors, watch);
}

Bound Table::bind(nb::handle tensors) {
  if (!replay_) value_error("the table has no plan yet");
  return replay_->bind(tensors);
}

}  // namespace nimble::aten
