#include "../reduction.h"

#include "../../core/kernels.h"
#include "reduce.h"
#include "walk.h"

namespace nimble::NIMBLE_ISA {
namespace {

struct Sum {
  static constexpr float start = 0.0f;
  NIMBLE_INLINE Floats of(Floats a, Floats b) { return a + b; }
  NIMBLE_INLINE float across(Floats x) { return sum(x); }
};
struct Max {
  static constexpr float start = -__builtin_inff();
  NIMBLE_INLINE Floats of(Floats a, Floats b) { return maximum(a, b); }
  NIMBLE_INLINE float across(Floats x) { return largest(x); }
};
struct Min {
  static constexpr float start = __builtin_inff();
  NIMBLE_INLINE Floats of(Floats a, Floats b) { return minimum(a, b); }
  NIMBLE_INLINE float across(Floats x) { return -largest(-x); }
};

// `n` elements, `step` apart, into eight. Runs of 1024 are reduced by themselves, since sums of
// few elements are more precise.
template <class Op>
Floats along(const float* x, std::int64_t n, std::int64_t step) {
  Floats total = splat(Op::start);
  for (std::int64_t i = 0; i < n;) {
    const std::int64_t stop = least<std::int64_t>(n, i + 1024);
    Floats a = splat(Op::start), b = a, c = a, d = a;
    if (step == 1) {
      for (; i + 4 * kLanes <= stop; i += 4 * kLanes) {
        a = Op::of(a, load(x + i));
        b = Op::of(b, load(x + i + kLanes));
        c = Op::of(c, load(x + i + 2 * kLanes));
        d = Op::of(d, load(x + i + 3 * kLanes));
      }
      for (; i + kLanes <= stop; i += kLanes) a = Op::of(a, load(x + i));
      if (i < stop) a = select(first(stop - i), Op::of(a, load(x + i, stop - i)), a);
    } else {
      for (; i + kLanes <= stop; i += kLanes) {
        Floats v;
        for (int k = 0; k < kLanes; ++k) v[k] = x[(i + k) * step];
        a = Op::of(a, v);
      }
      for (; i < stop; ++i) {
        Floats v = splat(Op::start);
        v[0] = x[i * step];
        b = Op::of(b, v);
      }
    }
    i = stop;
    total = Op::of(total, Op::of(Op::of(a, b), Op::of(c, d)));
  }
  return total;
}

// Rows that are added up by themselves, for the same reason: gradients of biases nearly cancel.
constexpr std::int64_t kRun = 16;

// kVectors vectors of columns, over the rows of the last reduced dimension.
template <class Op, int kVectors, bool kPartial>
NIMBLE_INLINE void down(const ReductionPlan& plan, float* out, const float* in, float divisor,
                        std::int64_t left) {
  Floats total[kVectors];
#pragma GCC unroll 4
  for (Floats& t : total) t = splat(Op::start);
  Walk walk{plan.reduced};
  for (std::int64_t r = 0; r < plan.reduced.count; ++r, walk.next()) {
    const float* x = in + walk.at[0];
    for (std::int64_t i = 0; i < plan.length;) {
      const std::int64_t stop = least<std::int64_t>(plan.length, i + kRun);
      Floats part[kVectors];
#pragma GCC unroll 4
      for (Floats& p : part) p = splat(Op::start);
      for (; i < stop; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const float* at = x + i * plan.step + v * kLanes;
          part[v] = Op::of(part[v], kPartial ? load(at, left) : load(at));
        }
      }
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) total[v] = Op::of(total[v], part[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const Floats value = total[v] / splat(divisor);
    kPartial ? store(out + v * kLanes, value, left) : store(out + v * kLanes, value);
  }
}

template <class Op>
void reduce_all(const NativeCall& call, const ReductionPlan& plan) {
  const float divisor = plan.kind == Reduction::mean ? static_cast<float>(plan.count) : 1.0f;
  Walk kept{plan.kept};
  for (std::int64_t r = 0; r < plan.kept.count; ++r, kept.next()) {
    float* out = call.operand<float>(0) + kept.at[0];
    const float* in = call.operand<const float>(1) + kept.at[1];
    if (plan.columns == 1) {
      Floats total = splat(Op::start);
      Walk walk{plan.reduced};
      for (std::int64_t i = 0; i < plan.reduced.count; ++i, walk.next()) {
        total = Op::of(total, along<Op>(in + walk.at[0], plan.length, plan.step));
      }
      *out = Op::across(total) / divisor;
      continue;
    }
    std::int64_t c = 0;
    for (; c + 4 * kLanes <= plan.columns; c += 4 * kLanes) down<Op, 4, false>(plan, out + c, in + c, divisor, 0);
    for (; c + kLanes <= plan.columns; c += kLanes) down<Op, 1, false>(plan, out + c, in + c, divisor, 0);
    const std::int64_t left = plan.columns - c;
    if (left > 0) down<Op, 1, true>(plan, out + c, in + c, divisor, left);
  }
}

}  // namespace

void reduce(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const ReductionPlan*>(call.plan);
  switch (plan.kind) {
    case Reduction::max: return reduce_all<Max>(call, plan);
    case Reduction::min: return reduce_all<Min>(call, plan);
    default: return reduce_all<Sum>(call, plan);
  }
}

}  // namespace nimble::NIMBLE_ISA
