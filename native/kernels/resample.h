#pragma once

#include "dispatch.h"

namespace nimble {

enum class Resampling : std::int8_t { nearest, exact, bilinear, bilinear_aligned };

// Channels lie side by side.
struct ResamplePlan {
  std::int64_t n, channels, height, width, out_height, out_width;
  std::int64_t y_n, y_h, y_w, x_n, x_h, x_w;  // strides
  std::int64_t first_row;                     // of the output
  Resampling mode;
  float step_h, step_w;  // input pixels per output pixel
};

NIMBLE_KERNEL(resample_nhwc)

}  // namespace nimble
