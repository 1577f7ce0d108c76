#pragma once

#include "dispatch.h"
#include "rows.h"

namespace nimble {

struct SoftmaxPlan {
  Rows rows;  // of y, x
  std::int64_t length;
  bool logarithm;
};

NIMBLE_KERNEL(softmax)

}  // namespace nimble
