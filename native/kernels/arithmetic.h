#pragma once

#include <cstdint>

#include "dispatch.h"

namespace nimble {

struct CountPlan {
  std::int64_t count;  // elements, or bytes for `copy`
};

NIMBLE_KERNEL(add_float32)
NIMBLE_KERNEL(sub_float32)
NIMBLE_KERNEL(mul_float32)
NIMBLE_KERNEL(div_float32)
NIMBLE_KERNEL(relu_float32)
NIMBLE_KERNEL(add_float64)
NIMBLE_KERNEL(sub_float64)
NIMBLE_KERNEL(mul_float64)
NIMBLE_KERNEL(div_float64)
NIMBLE_KERNEL(relu_float64)

}  // namespace nimble
