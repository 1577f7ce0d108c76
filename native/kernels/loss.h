#pragma once

#include "dispatch.h"

namespace nimble {

// The cross entropy of rows of logits: for every row the largest logit, the logarithm of the sum of
// exp(logit - largest), and the loss of its target.
struct LossPlan {
  std::int64_t rows, classes;
  std::int64_t ignored;        // a target whose row counts for nothing
  std::int64_t x_row, y_row;   // strides
  bool mean;                   // over the rows that count; or their sum
};

// Not in isa/: it allocates, and is for every instruction set.
[[noreturn]] void refuse_target(std::int64_t target);

NIMBLE_KERNEL(cross_entropy)
NIMBLE_KERNEL(total_loss)
NIMBLE_KERNEL(cross_entropy_gradient)

}  // namespace nimble
