// The tensors of one plan, and the calls that replay on them.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "call.h"
#include "convert.h"
#include "memory.h"
#include "replay.h"

namespace nimble::aten {

// A task as the tape needs it. The table owns the context.
struct Call {
  std::uintptr_t fn;
  std::uintptr_t context;
  std::string kind;  // "out", "copy" or "inplace"
  std::string op;    // what is called in the end
};

class Table {
 public:
  Table(std::size_t slots, std::size_t values);

  void storage(std::size_t slot, std::size_t nbytes);
  void memory(std::size_t slot, const at::Tensor& tensor);
  void value(std::size_t id, std::size_t slot, at::ScalarType dtype, const Ints& shape,
             const Ints& strides, std::size_t offset);
  Call call(const std::string& op, const std::string& overload, nb::list args, nb::dict kwargs,
            const std::vector<std::optional<std::size_t>>& results,
            const std::vector<std::size_t>& unused);

  // Runs calls one after the other on this thread, without a plan. Needs every slot to be a memory.
  void run(const std::vector<const Call*>& calls);

  void plan(std::uintptr_t tape, const ReplayApi& api, std::vector<Input> inputs,
            std::vector<Output> specs, std::vector<std::size_t> outputs,
            const std::vector<std::size_t>& mutated, bool repeatable);
  nb::list replay(nb::handle tensors, const Watch* watch);
  // Must not outlive the table.
  Bound bind(nb::handle tensors);

 private:
  Slot& slot(std::size_t number);
  void define(std::size_t number, Slot slot);
  at::Tensor result(const c10::OperatorHandle& op, std::size_t id) const;

  std::vector<Slot> slots_;
  Values values_;
  std::vector<std::unique_ptr<Invocation>> invocations_;
  std::unique_ptr<Replay> replay_;
  std::mutex running_;
};

}  // namespace nimble::aten
