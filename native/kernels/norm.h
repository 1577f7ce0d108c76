#pragma once

#include "dispatch.h"
#include "program.h"
#include "rows.h"

namespace nimble {

inline constexpr std::int64_t kMaxNormChannels = 4096;  // of group_norm on channels-last tensors

// y = x normalised * weight + bias, for rows of `length` elements.
struct LayerNormPlan {
  Rows rows;  // of y, x, statistics
  std::int64_t length;
  bool weight, bias;
  bool statistics;  // whether the mean and the inverse deviation of every row are handed out
  float eps;
  Epilogue epilogue;
};

// The gradient of x.
struct LayerNormGradientPlan {
  Rows rows;  // of x's gradient, y's gradient, x, statistics
  std::int64_t length;
  bool weight;
};

// The gradients of weight and bias.
struct LayerNormSumsPlan {
  Rows rows;  // of y's gradient, x, statistics
  std::int64_t length;
  bool weight, bias;  // which are asked for
};

struct GroupNormPlan {
  std::int64_t n, channels, pixels, groups;
  std::int64_t y_batch, x_batch;  // strides
  std::int64_t y_step, x_step;    // of a channel; of a pixel for channels-last tensors
  bool weight, bias;
  float eps;
  Epilogue epilogue;
};

NIMBLE_KERNEL(layer_norm)
NIMBLE_KERNEL(layer_norm_gradient)
NIMBLE_KERNEL(layer_norm_sums)
NIMBLE_KERNEL(rms_norm)
NIMBLE_KERNEL(group_norm)
NIMBLE_KERNEL(group_norm_nhwc)

}  // namespace nimble
