// Kernels' exceptions and warnings, as PyTorch itself would show them.
#pragma once

#include <c10/util/FunctionRef.h>

namespace nimble::aten {

// To be called once, when the module is made.
void translate_torch_errors();

// Turns what kernels warn about inside `body` into Python warnings. Needs the GIL.
void with_warnings(c10::function_ref<void()> body);

}  // namespace nimble::aten
