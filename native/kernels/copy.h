#pragma once

#include "dispatch.h"
#include "program.h"

namespace nimble {

struct CopyPlan {
  int dims;  // at least 2
  bool empty;
  bool transposes;  // the source has no gaps in the last dimension but one
  std::int64_t bytes;
  std::int64_t start;  // of the result, in elements: where a dimension is written backwards
  std::int64_t size[kMaxDims], to[kMaxDims], from[kMaxDims];
};

struct PadPlan {
  int dims;  // at least 1
  bool empty;
  float value;
  std::int64_t size[kMaxDims], before[kMaxDims], inner[kMaxDims];
  std::int64_t to[kMaxDims], from[kMaxDims];
};

NIMBLE_KERNEL(copy_strided)
NIMBLE_KERNEL(pad)

}  // namespace nimble
