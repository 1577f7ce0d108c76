#pragma once

#include <cstdint>

#include "dispatch.h"

namespace nimble {

// Two sums a channel, over all pixels of a batch.
struct StatisticsPlan {
  struct Steps {
    std::int64_t batch, channel, pixel;
  };
  std::int64_t n, channels, pixels;
  Steps x, gradient;
};

NIMBLE_KERNEL(moments)
NIMBLE_KERNEL(gradient_sums)

}  // namespace nimble
