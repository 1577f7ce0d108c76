#include "../../core/kernels.h"
#include "../norm.h"
#include "reduce.h"
#include "walk.h"

namespace nimble::NIMBLE_ISA {
namespace {

constexpr std::int64_t kRun = 64;  // rows that are summed before they are added to the others

// What a row of y's gradient, times the weights, adds up to: itself, and times x normalised.
struct RowSums {
  float plain, normalised;
};

// f(i, load) for every vector of n floats; the last may be partial.
template <class F>
NIMBLE_INLINE void vectors(std::int64_t n, F f) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(i, [](const float* p) { return load(p); });
  if (const std::int64_t left = n - i; left > 0) {
    f(i, [left](const float* p) { return load(p, left); });
  }
}

RowSums sums_of(const float* g, const float* x, const float* weight, std::int64_t n, float mean,
                float scale) {
  Floats plain = splat(0.0f), normalised = splat(0.0f);
  vectors(n, [&](std::int64_t i, auto get) __attribute__((always_inline)) {
    const Floats d = weight ? get(g + i) * get(weight + i) : get(g + i);
    plain += d;
    normalised = fma(d, get(x + i) - splat(mean), normalised);
  });
  return {sum(plain), sum(normalised) * scale};
}

}  // namespace

void layer_norm_gradient(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const LayerNormGradientPlan*>(call.plan);
  const float* weight = plan.weight ? call.operand<const float>(5) : nullptr;
  const std::int64_t n = plan.length;
  Walk walk{plan.rows};
  for (std::int64_t r = 0; r < plan.rows.count; ++r, walk.next()) {
    float* out = call.operand<float>(0) + walk.at[0];
    const float* g = call.operand<const float>(1) + walk.at[1];
    const float* x = call.operand<const float>(2) + walk.at[2];
    const float mean = call.operand<const float>(3)[walk.at[3]];
    const float scale = call.operand<const float>(4)[walk.at[3]];
    const RowSums sums = sums_of(g, x, weight, n, mean, scale);
    const auto length = static_cast<float>(n);
    const Floats plain = splat(sums.plain / length);
    const Floats slope = splat(sums.normalised / length * scale);
    std::int64_t i = 0;
    const auto made = [&](auto get) __attribute__((always_inline)) {
      const Floats d = weight ? get(g + i) * get(weight + i) : get(g + i);
      return (d - plain - (get(x + i) - splat(mean)) * slope) * splat(scale);
    };
    for (; i + kLanes <= n; i += kLanes) {
      store(out + i, made([](const float* p) { return load(p); }));
    }
    if (const std::int64_t left = n - i; left > 0) {
      store(out + i, made([left](const float* p) { return load(p, left); }), left);
    }
  }
}

void layer_norm_sums(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const LayerNormSumsPlan*>(call.plan);
  std::size_t next = 0;
  float* weight = plan.weight ? call.operand<float>(next++) : nullptr;
  float* bias = plan.bias ? call.operand<float>(next++) : nullptr;
  const auto* gradient = call.operand<const float>(next++);
  const auto* input = call.operand<const float>(next++);
  const auto* means = call.operand<const float>(next++);
  const auto* scales = call.operand<const float>(next++);
  vectors(plan.length, [&](std::int64_t c, auto get) __attribute__((always_inline)) {
    Floats slopes = splat(0.0f), offsets = splat(0.0f);
    Walk walk{plan.rows};
    for (std::int64_t begin = 0; begin < plan.rows.count; begin += kRun) {
      const std::int64_t end = least(begin + kRun, plan.rows.count);
      Floats slope = splat(0.0f), offset = splat(0.0f);
      for (std::int64_t r = begin; r < end; ++r, walk.next()) {
        const Floats g = get(gradient + walk.at[0] + c);
        const Floats x = get(input + walk.at[1] + c) - splat(means[walk.at[2]]);
        slope = fma(g, x * splat(scales[walk.at[2]]), slope);
        offset += g;
      }
      slopes += slope;
      offsets += offset;
    }
    const std::int64_t left = least<std::int64_t>(kLanes, plan.length - c);
    for (std::int64_t i = 0; i < left; ++i) {
      if (weight) weight[c + i] = slopes[i];
      if (bias) bias[c + i] = offsets[i];
    }
  });
}

}  // namespace nimble::NIMBLE_ISA
