// Python arguments → the IValues an op's schema asks for.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include "python.h"

namespace nimble::aten {

// An argument that is a tensor of the table.
struct Ref {
  std::size_t id;
};

using Values = std::vector<at::Tensor>;

// One IValue per argument of the schema, defaults filled in. Throws ValueError naming the op and
// the argument where they do not fit.
torch::jit::Stack convert(const c10::FunctionSchema& schema, nb::list args, nb::dict kwargs,
                          const Values& values);

}  // namespace nimble::aten
