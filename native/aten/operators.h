// Which op to call for a task: an out variant that writes in place where there is one.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

namespace nimble::aten {

// Throws ValueError where the op does not exist or cannot run on the CPU.
c10::OperatorHandle find_operator(const std::string& name, const std::string& overload);

// An op together with its arguments, results to be written included.
struct Prepared {
  c10::OperatorHandle op;
  torch::jit::Stack arguments;
};

// The call that does what `op` does on `arguments` and writes straight into `results`; nullopt
// where none does so without allocating the results itself.
std::optional<Prepared> in_place(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                                 const std::vector<at::Tensor>& results);

}  // namespace nimble::aten
