#include "../resample.h"

#include "../../core/kernels.h"
#include "vec.h"

namespace nimble::NIMBLE_ISA {
namespace {

// Where an output pixel comes from along one dimension: two input pixels and the share of the
// second. As PyTorch computes it, in floats.
struct Source {
  std::int64_t first, second;
  float share;
};

Source source_of(std::int64_t out, std::int64_t size, float step, Resampling mode) {
  const float at = static_cast<float>(out);
  const std::int64_t last = size - 1;
  if (mode == Resampling::nearest || mode == Resampling::exact) {
    const float place = (mode == Resampling::exact ? at + 0.5f : at) * step;
    const std::int64_t pixel = least(static_cast<std::int64_t>(place), last);
    return {pixel, pixel, 0.0f};
  }
  const bool aligned = mode == Resampling::bilinear_aligned;
  const float place = aligned ? at * step : most((at + 0.5f) * step - 0.5f, 0.0f);
  const std::int64_t pixel = least(static_cast<std::int64_t>(place), last);
  const float share = least(most(place - static_cast<float>(pixel), 0.0f), 1.0f);
  return {pixel, least(pixel + 1, last), share};
}

struct Corners {
  const float* at[4];
  float share[4];
};

// The channels of a pixel from those of one other, or of four.
template <bool kFour, bool kPartial>
NIMBLE_INLINE void blend(float* y, const Corners& from, std::int64_t c, std::int64_t left) {
  const auto get = [&](int i) {
    return kPartial ? load(from.at[i] + c, left) : load(from.at[i] + c);
  };
  Floats value = get(0);
  if constexpr (kFour) {
    value *= splat(from.share[0]);
#pragma GCC unroll 3
    for (int i = 1; i < 4; ++i) value = fma(get(i), splat(from.share[i]), value);
  }
  kPartial ? store(y + c, value, left) : store(y + c, value);
}

template <bool kFour>
void pixel(float* y, const Corners& from, std::int64_t channels) {
  std::int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) blend<kFour, false>(y, from, c, 0);
  if (c < channels) blend<kFour, true>(y, from, c, channels - c);
}

}  // namespace

void resample_nhwc(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const ResamplePlan*>(call.plan);
  const bool four =
      plan.mode == Resampling::bilinear || plan.mode == Resampling::bilinear_aligned;
  for (std::int64_t n = 0; n < plan.n; ++n) {
    const float* x = call.operand<const float>(1) + n * plan.x_n;
    for (std::int64_t i = 0; i < plan.out_height; ++i) {
      const Source h = source_of(plan.first_row + i, plan.height, plan.step_h, plan.mode);
      float* y = call.operand<float>(0) + n * plan.y_n + i * plan.y_h;
      for (std::int64_t k = 0; k < plan.out_width; ++k, y += plan.y_w) {
        const Source w = source_of(k, plan.width, plan.step_w, plan.mode);
        const Corners from{
            {x + h.first * plan.x_h + w.first * plan.x_w,
             x + h.first * plan.x_h + w.second * plan.x_w,
             x + h.second * plan.x_h + w.first * plan.x_w,
             x + h.second * plan.x_h + w.second * plan.x_w},
            {(1 - h.share) * (1 - w.share), (1 - h.share) * w.share, h.share * (1 - w.share),
             h.share * w.share}};
        four ? pixel<true>(y, from, plan.channels) : pixel<false>(y, from, plan.channels);
      }
    }
  }
}

}  // namespace nimble::NIMBLE_ISA
