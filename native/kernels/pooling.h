#pragma once

#include "dispatch.h"

namespace nimble {

enum class Pooling : std::int8_t { max, mean_with_padding, mean_without_padding, adaptive_mean };

// One of the two dimensions that are pooled.
struct PoolAxis {
  std::int64_t in, out, kernel, stride, padding, dilation;
};

// Channels lie side by side.
struct PoolPlan {
  Pooling kind;
  std::int64_t n, channels;
  PoolAxis h, w;
  std::int64_t y_n, y_h, y_w, x_n, x_h, x_w;  // strides
  float divisor;                              // 0: the number of elements
  std::int64_t d_n, d_h, d_w;                 // strides of x's gradient, where y is that of the result
};

NIMBLE_KERNEL(pool_nhwc)
NIMBLE_KERNEL(max_pool_gradient_nhwc)

}  // namespace nimble
