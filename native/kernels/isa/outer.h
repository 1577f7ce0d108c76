// What the gradients of weights share: pixels copied side by side, and the kernels' ways.
#pragma once

#include "../../core/kernels.h"
#include "../weight_gradient.h"
#include "vec.h"

namespace nimble::NIMBLE_ISA {

using Plan = WeightGradientPlan;

constexpr int kRows = 6;                    // of a tile, each one element broadcast
constexpr int kColumns = 16;                // of a tile: one vector or two
constexpr int kWide = 8 * kRows;            // rows that are copied together
constexpr std::int64_t kPixels = 128;       // that are copied together

// [pixel][kWidth] of `width` channels from the first one on; zeros beyond them, as far as tiles look.
template <int kWidth>
NIMBLE_INLINE void gather(float* to, const float* const* pixels, std::int64_t count,
                          std::int64_t start, std::int64_t width) {
  const std::int64_t seen = kWidth == kColumns ? kColumns : (width + kRows - 1) / kRows * kRows;
  for (std::int64_t p = 0; p < count; ++p, to += kWidth) {
    const float* from = pixels[p] + start;
    std::int64_t v = 0;
    for (; v + kLanes <= width; v += kLanes) store(to + v, load(from + v));
    if (v < width) store(to + v, load(from + v, width - v));
    for (v = (width + kLanes - 1) / kLanes * kLanes; v < seen; v += kLanes) store(to + v, splat(0.0f));
  }
}

// total[i][j] += a[i] b[j]
NIMBLE_INLINE void add_outer(Floats (&total)[kRows][kPerPanel], const float* a, const float* b) {
  Floats row[kPerPanel];
#pragma GCC unroll 2
  for (int c = 0; c < kPerPanel; ++c) row[c] = load(b + c * kLanes);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    const Floats one = splat(a[i]);
#pragma GCC unroll 2
    for (int c = 0; c < kPerPanel; ++c) total[i][c] = fma(one, row[c], total[i][c]);
  }
}

// Positions [first, last) of the result, of [low, high), whose input at this tap lies inside.
struct Range {
  std::int64_t first, last;
};
NIMBLE_INLINE Range inside(const Plan::Dimension& d, std::int64_t tap, std::int64_t low, std::int64_t high) {
  const std::int64_t shift = tap * d.dilation - d.padding;  // input = position * stride + shift
  const std::int64_t first = shift >= 0 ? 0 : (-shift + d.stride - 1) / d.stride;
  const std::int64_t room = d.in - 1 - shift;
  const std::int64_t last = room < 0 ? 0 : room / d.stride + 1;
  return {most(low, first), least(high, last)};
}

// For images so small that all taps of some pixels stay in the cache: see tap_by_tap.cpp.
bool can_go_tap_by_tap(const Plan& plan);
void weight_gradient_tap_by_tap(const NativeCall& call, const Plan& plan);

}  // namespace nimble::NIMBLE_ISA
