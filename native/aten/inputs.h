// The tensors a replay is called with: are they what the plan was made for?
#pragma once

#include <cstddef>

#include "memory.h"
#include "python.h"

namespace nimble::aten {

struct Input {
  std::size_t slot;
  at::ScalarType dtype;
  Ints shape;
  Ints strides;
  bool mutated = false;
};

// nimble._aten.Mismatch: tensor `index` does not fit the plan. Its args are (index, text).
void make_mismatch(nb::module_& module);
[[noreturn]] void raise_mismatch(std::size_t index, const std::string& text);

// Throw Mismatch where a tensor does not fit.
void check(nb::handle tensor, const Input& input, std::size_t index);
// A memory that is written may be reached in one way only.
void check_overlaps(const std::vector<Input>& inputs, const std::vector<Range>& ranges,
                    const std::vector<Slot>& slots, const std::vector<std::size_t>& mutated_slots);

}  // namespace nimble::aten
