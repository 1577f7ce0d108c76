#pragma once

#include "dispatch.h"
#include "rows.h"

namespace nimble {

// The k largest (or smallest) elements of every row, in their order, and where they are.
struct TopkPlan {
  std::int64_t length, k;
  std::int64_t value_step, place_step, x_step;  // strides along a row
  bool largest;
  Rows rows;  // of values, places, x
};

NIMBLE_KERNEL(topk)

}  // namespace nimble
