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

}  // namespace nimble::NIMBLE_ISA
