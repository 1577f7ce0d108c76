#include "../statistics.h"

#include "../../core/kernels.h"
#include "vec.h"

namespace nimble::NIMBLE_ISA {
namespace {

using Steps = StatisticsPlan::Steps;

constexpr std::int64_t kChannels = 1024;      // whose sums are kept at once
constexpr std::int64_t kRun = 16;             // pixels that are summed up in float, and gone through strip by strip

// What is summed up for an element: of moments its distance from `around` and that squared, of a
// gradient itself and its product with such a distance.
struct Moments {
  NIMBLE_INLINE void add(Floats x, Floats, Floats around, Floats& a, Floats& b) {
    const Floats d = x - around;
    a = a + d;
    b = fma(d, d, b);
  }
};
struct Gradient {
  NIMBLE_INLINE void add(Floats x, Floats g, Floats around, Floats& a, Floats& b) {
    a = a + g;
    b = fma(g, x - around, b);
  }
};

NIMBLE_INLINE void add(Floats run, double* sums) {
  float lanes[kLanes];
  store(lanes, run);
  for (int lane = 0; lane < kLanes; ++lane) sums[lane] += static_cast<double>(lanes[lane]);
}

// kVectors vectors of channels over `count` pixels without a gap between channels.
template <class Kind, int kVectors, bool kPartial>
NIMBLE_INLINE void strip(const float* x, std::int64_t x_step, const float* g, std::int64_t g_step,
                         std::int64_t count, const float* around, double* first_sum,
                         double* second_sum, std::int64_t left) {
  const auto get = [&](const float* p) { return kPartial ? load(p, left) : load(p); };
  Floats a[kVectors], b[kVectors], center[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    a[v] = b[v] = splat(0.0f);
    center[v] = load(around + kLanes * v);
  }
  for (std::int64_t p = 0; p < count; ++p, x += x_step, g += g_step) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) Kind::add(get(x + kLanes * v), get(g + kLanes * v), center[v], a[v], b[v]);
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    add(a[v], first_sum + kLanes * v);
    add(b[v], second_sum + kLanes * v);
  }
}

// Up to kChannels channels, innermost in memory. All arrays have room for whole vectors.
template <class Kind>
void channels_last(const StatisticsPlan& plan, const float* x, const float* g, std::int64_t channels,
                   const float* around, double* first_sum, double* second_sum) {
  for (std::int64_t n = 0; n < plan.n; ++n) {
    for (std::int64_t p = 0; p < plan.pixels; p += kRun) {
      const std::int64_t count = least(kRun, plan.pixels - p);
      const float* xs = x + n * plan.x.batch + p * plan.x.pixel;
      const float* gs = g + n * plan.gradient.batch + p * plan.gradient.pixel;
      std::int64_t c = 0;
      for (; c + 4 * kLanes <= channels; c += 4 * kLanes) {
        strip<Kind, 4, false>(xs + c, plan.x.pixel, gs + c, plan.gradient.pixel, count, around + c,
                              first_sum + c, second_sum + c, 0);
      }
      for (; c + kLanes <= channels; c += kLanes) {
        strip<Kind, 1, false>(xs + c, plan.x.pixel, gs + c, plan.gradient.pixel, count, around + c,
                              first_sum + c, second_sum + c, 0);
      }
      if (c < channels) {
        strip<Kind, 1, true>(xs + c, plan.x.pixel, gs + c, plan.gradient.pixel, count, around + c,
                             first_sum + c, second_sum + c, channels - c);
      }
    }
  }
}

// One channel, pixel by pixel.
template <class Kind>
void channel(const StatisticsPlan& plan, const float* x, const float* g, float around,
             double& first_sum, double& second_sum) {
  const Floats center = splat(around);
  const bool dense = plan.x.pixel == 1 && plan.gradient.pixel == 1;
  for (std::int64_t n = 0; n < plan.n; ++n, x += plan.x.batch, g += plan.gradient.batch) {
    for (std::int64_t p = 0; p < plan.pixels;) {
      const std::int64_t stop = least(plan.pixels, p + kRun * kLanes);
      Floats a = splat(0.0f), b = a;
      double rest = 0, other_rest = 0;
      for (; dense && p + kLanes <= stop; p += kLanes) Kind::add(load(x + p), load(g + p), center, a, b);
      for (; p < stop; ++p) {
        Floats one = splat(0.0f), other = one;
        Kind::add(splat(x[p * plan.x.pixel]), splat(g[p * plan.gradient.pixel]), center, one, other);
        rest += one[0];
        other_rest += other[0];
      }
      first_sum += rest + static_cast<double>(sum(a));
      second_sum += other_rest + static_cast<double>(sum(b));
    }
  }
}

// Calls `done(channel, around, first sum, second sum)` for each channel.
template <class Kind, class Around, class Done>
void each_channel(const StatisticsPlan& plan, const float* x, const float* g, Around around_of,
                  Done done) {
  const bool last = plan.x.channel == 1 && plan.gradient.channel == 1;
  for (std::int64_t c = 0; c < plan.channels; c += kChannels) {
    const std::int64_t count = least(kChannels, plan.channels - c);
    float around[kChannels + kLanes] = {};
    double first_sum[kChannels + kLanes] = {}, second_sum[kChannels + kLanes] = {};
    const float* xs = x + c * plan.x.channel;
    const float* gs = g + c * plan.gradient.channel;
    for (std::int64_t i = 0; i < count; ++i) around[i] = around_of(c + i);
    if (last) channels_last<Kind>(plan, xs, gs, count, around, first_sum, second_sum);
    for (std::int64_t i = 0; i < count; ++i) {
      if (!last) {
        channel<Kind>(plan, xs + i * plan.x.channel, gs + i * plan.gradient.channel, around[i],
                      first_sum[i], second_sum[i]);
      }
      done(c + i, around[i], first_sum[i], second_sum[i]);
    }
  }
}

}  // namespace

void moments(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  StatisticsPlan plan = *static_cast<const StatisticsPlan*>(call.plan);
  plan.gradient = plan.x;  // not looked at
  float* mean = call.operand<float>(0);
  float* variance = call.operand<float>(1);
  const float* x = call.operand<const float>(2);
  const auto count = static_cast<double>(plan.n * plan.pixels);
  // Around the first pixel: sums around 0 lose the digits that a large mean and a small variance
  // have in common.
  each_channel<Moments>(
      plan, x, x, [&](std::int64_t c) { return x[c * plan.x.channel]; },
      [&](std::int64_t c, float around, double distance, double squares) {
        const double shift = distance / count, found = squares / count - shift * shift;
        mean[c] = static_cast<float>(around + shift);
        variance[c] = static_cast<float>(found < 0.0 ? 0.0 : found);  // NaN stays
      });
}

void gradient_sums(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const StatisticsPlan*>(call.plan);
  float* total = call.operand<float>(0);
  float* product = call.operand<float>(1);
  const float* mean = call.operand<const float>(4);
  each_channel<Gradient>(
      plan, call.operand<const float>(2), call.operand<const float>(3),
      [&](std::int64_t c) { return mean[c]; },
      [&](std::int64_t c, float, double gradient, double with_distance) {
        total[c] = static_cast<float>(gradient);
        product[c] = static_cast<float>(with_distance);
      });
}

}  // namespace nimble::NIMBLE_ISA
