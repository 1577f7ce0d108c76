#include "../softmax.h"

#include "../../core/kernels.h"
#include "softmax.h"
#include "walk.h"

namespace nimble::NIMBLE_ISA {

void softmax(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const SoftmaxPlan*>(call.plan);
  const std::int64_t n = plan.length;
  Walk walk{plan.rows};
  for (std::int64_t r = 0; r < plan.rows.count; ++r, walk.next()) {
    float* y = call.operand<float>(0) + walk.at[0];
    const float* x = call.operand<const float>(1) + walk.at[1];
    const float top = largest_of(x, n);
    if (plan.logarithm) {
      const Floats m = splat(top);
      const float total =
          sum_of(x, n, [m](Floats v) __attribute__((always_inline)) { return exp_of_negative(v - m); });
      const Floats shift = splat(log_of(splat(total))[0]);
      map_row(y, x, n, [&](Floats v) __attribute__((always_inline)) { return (v - m) - shift; });
    } else {
      const Floats factor = splat(1.0f / exp_row(y, x, n, top));
      map_row(y, y, n, [factor](Floats v) __attribute__((always_inline)) { return v * factor; });
    }
  }
}

}  // namespace nimble::NIMBLE_ISA
