#pragma once

#include <cstdint>

#include "dispatch.h"

namespace nimble {

// The gradient of a convolution's weights, from that of its result and its input.
struct WeightGradientPlan {
  struct Dimension {  // of an image: rows or columns
    std::int64_t out, in, kernel, stride, dilation, padding;
  };
  struct Steps {
    std::int64_t n, h, w;
  };
  std::int64_t n, out, in;  // channels
  Dimension h, w;
  Steps gradient, x;
  std::int64_t of_out, of_in, of_h, of_w;  // strides of the weights
};

NIMBLE_KERNEL(weight_gradient)
NIMBLE_KERNEL(depthwise_gradient)

}  // namespace nimble
