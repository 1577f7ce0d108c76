#pragma once

#include "convolution.h"

namespace nimble {

// A convolution by 3 x 3 at stride 1 as products of transformed tiles (Winograd): of `side` x `side`
// pixels of the output, from (side + 2)^2 of the input.
struct WinogradPlan {
  std::int64_t side;   // 2 or 4
  std::int64_t block;  // tiles that are transformed together
  ConvolutionPlan convolution;
};

struct PackWinogradPlan {
  std::int64_t side, panels, in;
};

NIMBLE_KERNEL(winograd)
NIMBLE_KERNEL(pack_winograd)

// Floats between the same element of two transformed values. Not a power of two: the values of
// one tile would compete for the same lines of the cache.
inline constexpr std::int64_t winograd_gap = 16;
// Of weights, for whose products there is room at once.
inline constexpr std::int64_t winograd_panels = 2;

}  // namespace nimble
