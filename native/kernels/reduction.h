#pragma once

#include "dispatch.h"
#include "rows.h"

namespace nimble {

enum class Reduction : std::int8_t { sum, mean, max, min };

struct ReductionPlan {
  Reduction kind;
  Rows kept;             // of out, in
  std::int64_t columns;  // kept dimension without gaps in both; 1 if there is none
  Rows reduced;          // of in
  std::int64_t length, step;  // last reduced dimension
  std::int64_t count;         // reduced elements
};

NIMBLE_KERNEL(reduce)

}  // namespace nimble
