#include "../norm.h"

#include "program.h"
#include "reduce.h"
#include "walk.h"

namespace nimble::NIMBLE_ISA {
namespace {

// y = (x - mean) * scale * weight + bias. Null weight is 1, null bias is 0.
NIMBLE_INLINE void normalise(float* y, const float* x, std::int64_t n, float mean, float scale,
                             const float* weight, const float* bias) {
  const Floats m = splat(mean), s = splat(scale), one = splat(1.0f), zero = splat(0.0f);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Floats v = (load(x + i) - m) * s;
    store(y + i, fma(v, weight ? load(weight + i) : one, bias ? load(bias + i) : zero));
  }
  const std::int64_t left = n - i;
  if (left == 0) return;
  const Floats v = (load(x + i, left) - m) * s;
  store(y + i, fma(v, weight ? load(weight + i, left) : one, bias ? load(bias + i, left) : zero),
        left);
}

NIMBLE_INLINE float inverse_root(float x) { return 1.0f / __builtin_sqrtf(x); }

NIMBLE_INLINE float squares_around(const float* x, std::int64_t n, float mean) {
  const Floats m = splat(mean);
  return sum_of(x, n, [m](Floats v) __attribute__((always_inline)) { return (v - m) * (v - m); });
}

// kMean: layer_norm subtracts the mean, rms_norm does not.
template <bool kMean>
void normalise_rows(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const LayerNormPlan*>(call.plan);
  std::size_t next = 0;
  auto* y = call.operand<float>(next++);
  float* means = plan.statistics ? call.operand<float>(next++) : nullptr;
  float* scales = plan.statistics ? call.operand<float>(next++) : nullptr;
  const auto* x = call.operand<const float>(next++);
  const float* weight = plan.weight ? call.operand<const float>(next++) : nullptr;
  const float* bias = plan.bias ? call.operand<const float>(next++) : nullptr;
  const std::int64_t n = plan.length;
  Walk walk{plan.rows};
  for (std::int64_t r = 0; r < plan.rows.count; ++r, walk.next()) {
    float* out = y + walk.at[0];
    const float* in = x + walk.at[1];
    const auto length = static_cast<float>(n);
    const float mean = kMean ? sum_of(in, n) / length : 0.0f;
    const float scale = inverse_root(squares_around(in, n, mean) / length + plan.eps);
    normalise(out, in, n, mean, scale, weight, bias);
    if (plan.statistics) {
      means[walk.at[2]] = mean;
      scales[walk.at[2]] = scale;
    }
    if (plan.epilogue.present) finish(plan.epilogue, call, out, r, 0, n);
  }
}

struct GroupOperands {
  float* y;
  const float *x, *weight, *bias;
};

GroupOperands group_operands(const NativeCall& call, const GroupNormPlan& plan) {
  GroupOperands at{call.operand<float>(0), call.operand<const float>(1), nullptr, nullptr};
  std::size_t next = 2;
  if (plan.weight) at.weight = call.operand<const float>(next++);
  if (plan.bias) at.bias = call.operand<const float>(next++);
  return at;
}

// sums[c] = the sum over pixels of (x - mean[c]), squared if kSquare. Few pixels are summed
// before their sum is added to the total, to keep the rounding error small.
template <bool kSquare>
void sum_pixels(float* sums, const float* x, std::int64_t pixels, std::int64_t step,
                std::int64_t channels, const float* mean) {
  for (std::int64_t c = 0; c < channels; c += kLanes) {
    const std::int64_t left = least<std::int64_t>(kLanes, channels - c);
    const Floats m = load(mean + c);
    Floats total = splat(0.0f);
    for (std::int64_t p = 0; p < pixels;) {
      const std::int64_t stop = least<std::int64_t>(p + 128, pixels);
      Floats part = splat(0.0f);
      for (; p < stop; ++p) {
        const float* at = x + p * step + c;
        const Floats v = (left == kLanes ? load(at) : load(at, left)) - m;
        part = kSquare ? fma(v, v, part) : part + v;
      }
      total += part;
    }
    store(sums + c, total);
  }
}

// Replaces every channel's sum by the mean of its group.
void spread_groups(float* sums, const GroupNormPlan& plan) {
  const std::int64_t size = plan.channels / plan.groups;
  for (std::int64_t g = 0; g < plan.groups; ++g) {
    float total = 0.0f;
    for (std::int64_t c = 0; c < size; ++c) total += sums[g * size + c];
    const float mean = total / static_cast<float>(size * plan.pixels);
    for (std::int64_t c = 0; c < size; ++c) sums[g * size + c] = mean;
  }
}

}  // namespace

void layer_norm(void* call) { normalise_rows<true>(call); }
void rms_norm(void* call) { normalise_rows<false>(call); }

void group_norm(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const GroupNormPlan*>(call.plan);
  const GroupOperands at = group_operands(call, plan);
  const std::int64_t size = plan.channels / plan.groups;
  const auto count = static_cast<float>(size * plan.pixels);
  for (std::int64_t n = 0; n < plan.n; ++n) {
    for (std::int64_t g = 0; g < plan.groups; ++g) {
      const std::int64_t first_channel = g * size;
      const float* x = at.x + n * plan.x_batch + first_channel * plan.x_step;
      float total = 0.0f, squares = 0.0f;
      for (std::int64_t c = 0; c < size; ++c) total += sum_of(x + c * plan.x_step, plan.pixels);
      const float mean = total / count;
      for (std::int64_t c = 0; c < size; ++c) {
        squares += squares_around(x + c * plan.x_step, plan.pixels, mean);
      }
      const float scale = inverse_root(squares / count + plan.eps);
      for (std::int64_t c = 0; c < size; ++c) {
        const std::int64_t channel = first_channel + c;
        const float s = at.weight ? scale * at.weight[channel] : scale;
        const Floats m = splat(mean), w = splat(s), b = splat(at.bias ? at.bias[channel] : 0.0f);
        float* y = at.y + n * plan.y_batch + channel * plan.y_step;
        const float* in = x + c * plan.x_step;
        std::int64_t i = 0;
        for (; i + kLanes <= plan.pixels; i += kLanes) store(y + i, fma(load(in + i) - m, w, b));
        const std::int64_t left = plan.pixels - i;
        if (left > 0) store(y + i, fma(load(in + i, left) - m, w, b), left);
        if (plan.epilogue.present) {
          finish(plan.epilogue, call, y, n * plan.channels + channel, 0, plan.pixels);
        }
      }
    }
  }
}

void group_norm_nhwc(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const GroupNormPlan*>(call.plan);
  const GroupOperands at = group_operands(call, plan);
  // One vector more, so that whole vectors are read.
  float mean[kMaxNormChannels + kLanes], scale[kMaxNormChannels + kLanes], shift[kMaxNormChannels + kLanes];
  for (std::int64_t c = 0; c < plan.channels; ++c) shift[c] = at.bias ? at.bias[c] : 0.0f;
  for (std::int64_t n = 0; n < plan.n; ++n) {
    const float* x = at.x + n * plan.x_batch;
    for (std::int64_t c = 0; c < plan.channels + kLanes; ++c) scale[c] = 0.0f;
    sum_pixels<false>(mean, x, plan.pixels, plan.x_step, plan.channels, scale);
    spread_groups(mean, plan);
    sum_pixels<true>(scale, x, plan.pixels, plan.x_step, plan.channels, mean);
    spread_groups(scale, plan);
    for (std::int64_t c = 0; c < plan.channels; ++c) {
      scale[c] = inverse_root(scale[c] + plan.eps) * (at.weight ? at.weight[c] : 1.0f);
    }
    for (std::int64_t p = 0; p < plan.pixels; ++p) {
      const float* in = x + p * plan.x_step;
      float* y = at.y + n * plan.y_batch + p * plan.y_step;
      std::int64_t c = 0;
      for (; c + kLanes <= plan.channels; c += kLanes) {
        store(y + c, fma(load(in + c) - load(mean + c), load(scale + c), load(shift + c)));
      }
      const std::int64_t left = plan.channels - c;
      if (left > 0) {
        const Floats v = load(in + c, left) - load(mean + c, left);
        store(y + c, fma(v, load(scale + c, left), load(shift + c, left)), left);
      }
      if (plan.epilogue.present) {
        finish(plan.epilogue, call, y, n * plan.pixels + p, 0, plan.channels);
      }
    }
  }
}

}  // namespace nimble::NIMBLE_ISA
