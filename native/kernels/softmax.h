#pragma once

#include "dispatch.h"
#include "rows.h"

namespace nimble {

struct SoftmaxPlan {
  Rows rows;  // of y, x, mask
  std::int64_t length;
  bool logarithm, mask;
  std::int64_t mask_inner;  // stride
  float scale;
};

NIMBLE_KERNEL(softmax)

}  // namespace nimble
