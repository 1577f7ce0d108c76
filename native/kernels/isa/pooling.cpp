#include "../pooling.h"

#include "../../core/kernels.h"
#include "vec.h"

namespace nimble::NIMBLE_ISA {
namespace {

struct Window {
  std::int64_t first, count, step;
  std::int64_t padded;  // elements, those of the padding too
};

Window window_at(const PoolAxis& axis, std::int64_t out, bool adaptive) {
  if (adaptive) {
    const std::int64_t first = out * axis.in / axis.out;
    const std::int64_t stop = ((out + 1) * axis.in + axis.out - 1) / axis.out;
    return {first, stop - first, 1, stop - first};
  }
  const std::int64_t start = out * axis.stride - axis.padding;
  const std::int64_t padded = least(start + axis.kernel, axis.in + axis.padding) - start;
  if (axis.dilation == 1) {  // as below, without its divisions
    const std::int64_t from = most<std::int64_t>(start, 0);
    const std::int64_t stop = least(start + axis.kernel, axis.in);
    return {from, most<std::int64_t>(0, stop - from), 1, padded};
  }
  const std::int64_t skipped = start < 0 ? (-start + axis.dilation - 1) / axis.dilation : 0;
  const std::int64_t first = start + skipped * axis.dilation;
  const std::int64_t inside = (axis.in - first + axis.dilation - 1) / axis.dilation;
  const std::int64_t count = least(axis.kernel - skipped, inside);
  return {first, most<std::int64_t>(0, count), axis.dilation, padded};
}

// kVectors vectors of channels of one output pixel. The last may be partial. Windows have kSide x
// kSide pixels, or as many as they say if that is 0.
template <bool kMax, int kVectors, bool kPartial, int kSide>
NIMBLE_INLINE void pool_channels(float* y, const float* x, const Window& h, const Window& w,
                                 std::int64_t x_h, std::int64_t x_w, float factor,
                                 std::int64_t left) {
  const std::int64_t high = kSide > 0 ? kSide : h.count, wide = kSide > 0 ? kSide : w.count;
  Floats total[kVectors];
#pragma GCC unroll 4
  for (Floats& t : total) t = splat(kMax ? -__builtin_inff() : 0.0f);
#pragma GCC unroll 3
  for (std::int64_t i = 0; i < high; ++i) {
    const float* row = x + (h.first + i * h.step) * x_h + w.first * x_w;
    Floats part[kVectors];  // rows are summed by themselves, to keep the rounding error small
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) part[v] = kMax ? total[v] : splat(0.0f);
#pragma GCC unroll 3
    for (std::int64_t k = 0; k < wide; ++k) {
      const float* at = row + k * w.step * x_w;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const Floats value = kPartial ? load(at + v * kLanes, left) : load(at + v * kLanes);
        part[v] = kMax ? maximum(part[v], value) : part[v] + value;
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) total[v] = kMax ? part[v] : total[v] + part[v];
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const Floats value = kMax ? total[v] : total[v] / splat(factor);
    kPartial ? store(y + v * kLanes, value, left) : store(y + v * kLanes, value);
  }
}

template <bool kMax, int kSide>
void pool_pixel(const PoolPlan& plan, float* y, const float* x, const Window& h, const Window& w) {
  float divisor = plan.divisor;
  if (divisor == 0.0f) {
    const std::int64_t count =
        plan.kind == Pooling::mean_with_padding ? h.padded * w.padded : h.count * w.count;
    divisor = static_cast<float>(count);
  }
  std::int64_t c = 0;
  for (; c + 4 * kLanes <= plan.channels; c += 4 * kLanes) {
    pool_channels<kMax, 4, false, kSide>(y + c, x + c, h, w, plan.x_h, plan.x_w, divisor, 0);
  }
  for (; c + kLanes <= plan.channels; c += kLanes) {
    pool_channels<kMax, 1, false, kSide>(y + c, x + c, h, w, plan.x_h, plan.x_w, divisor, 0);
  }
  const std::int64_t left = plan.channels - c;
  if (left == 0) return;
  pool_channels<kMax, 1, true, kSide>(y + c, x + c, h, w, plan.x_h, plan.x_w, divisor, left);
}

// A vector of channels of one output pixel: its gradient is added to that of the largest in the window,
// the first of several, or the last NaN.
template <bool kPartial>
NIMBLE_INLINE void give_back(const PoolPlan& plan, float* d, const float* g, const float* x,
                             const Window& h, const Window& w, std::int64_t left) {
  const auto get = [left](const float* p) { return kPartial ? load(p, left) : load(p); };
  Floats best = splat(-__builtin_inff());
  Ints found = splat_int(0), number = splat_int(0);
  for (std::int64_t i = 0; i < h.count; ++i) {
    const float* at = x + (h.first + i * h.step) * plan.x_h + w.first * plan.x_w;
    for (std::int64_t k = 0; k < w.count; ++k, at += w.step * plan.x_w, number += 1) {
      const Floats value = get(at);
      const Ints better = (value > best) | (value != value);
      best = select(better, value, best);
      found = better ? number : found;
    }
  }
  const Floats gradient = get(g);
  number = splat_int(0);
  for (std::int64_t i = 0; i < h.count; ++i) {
    float* to = d + (h.first + i * h.step) * plan.d_h + w.first * plan.d_w;
    for (std::int64_t k = 0; k < w.count; ++k, to += w.step * plan.d_w, number += 1) {
      const Floats sum = get(to) + select(found == number, gradient, splat(0.0f));
      kPartial ? store(to, sum, left) : store(to, sum);
    }
  }
}

}  // namespace

void pool_nhwc(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const PoolPlan*>(call.plan);
  auto* y = call.operand<float>(0);
  const auto* x = call.operand<const float>(1);
  const bool adaptive = plan.kind == Pooling::adaptive_mean;
  for (std::int64_t n = 0; n < plan.n; ++n) {
    for (std::int64_t i = 0; i < plan.h.out; ++i) {
      const Window h = window_at(plan.h, i, adaptive);
      for (std::int64_t k = 0; k < plan.w.out; ++k) {
        const Window w = window_at(plan.w, k, adaptive);
        float* out = y + n * plan.y_n + i * plan.y_h + k * plan.y_w;
        const bool three = h.count == 3 && w.count == 3;
        const auto pool = plan.kind == Pooling::max
                              ? (three ? pool_pixel<true, 3> : pool_pixel<true, 0>)
                              : (three ? pool_pixel<false, 3> : pool_pixel<false, 0>);
        pool(plan, out, x + n * plan.x_n, h, w);
      }
    }
  }
}

void max_pool_gradient_nhwc(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const PoolPlan*>(call.plan);
  for (std::int64_t n = 0; n < plan.n; ++n) {
    float* d = call.operand<float>(0) + n * plan.d_n;
    const float* x = call.operand<const float>(2) + n * plan.x_n;
    for (std::int64_t i = 0; i < plan.h.in; ++i) {
      for (std::int64_t k = 0; k < plan.w.in; ++k) {
        float* pixel = d + i * plan.d_h + k * plan.d_w;
        for (std::int64_t c = 0; c < plan.channels; ++c) pixel[c] = 0.0f;
      }
    }
    for (std::int64_t i = 0; i < plan.h.out; ++i) {
      const Window h = window_at(plan.h, i, false);
      for (std::int64_t k = 0; k < plan.w.out; ++k) {
        const Window w = window_at(plan.w, k, false);
        const float* g = call.operand<const float>(1) + n * plan.y_n + i * plan.y_h + k * plan.y_w;
        std::int64_t c = 0;
        for (; c + kLanes <= plan.channels; c += kLanes) {
          give_back<false>(plan, d + c, g + c, x + c, h, w, 0);
        }
        if (c < plan.channels) give_back<true>(plan, d + c, g + c, x + c, h, w, plan.channels - c);
      }
    }
  }
}

}  // namespace nimble::NIMBLE_ISA
