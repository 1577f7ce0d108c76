#pragma once

#include "dispatch.h"
#include "program.h"

namespace nimble {

struct PointwiseOperand {
  DType dtype;
  std::int64_t stride[kMaxDims];
};

struct PointwisePlan {
  int dims;  // at least 2; the blocks are made of the last two
  std::int64_t size[kMaxDims];
  bool empty;
  PointwiseOperand operand[kMaxOperands];  // outputs, then inputs
  Program program;
};

NIMBLE_KERNEL(pointwise)

}  // namespace nimble
