#include "../loss.h"

#include "../../core/kernels.h"
#include "softmax.h"

namespace nimble::NIMBLE_ISA {

void cross_entropy(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const LossPlan*>(call.plan);
  auto* losses = call.operand<float>(0);
  auto* shifts = call.operand<float>(1);
  const auto* x = call.operand<const float>(2);
  const auto* targets = call.operand<const std::int64_t>(3);
  for (std::int64_t r = 0; r < plan.rows; ++r, x += plan.x_row, shifts += 2) {
    const std::int64_t target = targets[r];
    if (target == plan.ignored) {
      losses[r] = shifts[0] = shifts[1] = 0.0f;
      continue;
    }
    if (target < 0 || target >= plan.classes) refuse_target(target);
    const float top = largest_of(x, plan.classes);
    const Floats m = splat(top);
    const float total = sum_of(
        x, plan.classes, [m](Floats v) __attribute__((always_inline)) { return exp_of_negative(v - m); });
    shifts[0] = top;
    shifts[1] = log_of(splat(total))[0];
    losses[r] = shifts[1] - (x[target] - top);
  }
}

void total_loss(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const LossPlan*>(call.plan);
  const auto* losses = call.operand<const float>(2);
  const auto* targets = call.operand<const std::int64_t>(3);
  double sum = 0.0;
  std::int64_t count = 0;
  for (std::int64_t r = 0; r < plan.rows; ++r) {
    if (targets[r] == plan.ignored) continue;
    sum += static_cast<double>(losses[r]);
    ++count;
  }
  const auto counted = static_cast<float>(count);
  *call.operand<float>(0) =
      plan.mean ? static_cast<float>(sum / static_cast<double>(count)) : static_cast<float>(sum);
  *call.operand<float>(1) = counted;
}

void cross_entropy_gradient(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const LossPlan*>(call.plan);
  auto* y = call.operand<float>(0);
  const auto* x = call.operand<const float>(1);
  const auto* targets = call.operand<const std::int64_t>(2);
  const auto* shifts = call.operand<const float>(3);
  const float given = *call.operand<const float>(4);
  const float one = plan.mean ? given / *call.operand<const float>(5) : given;
  const Floats scale = splat(one);
  for (std::int64_t r = 0; r < plan.rows; ++r, x += plan.x_row, y += plan.y_row, shifts += 2) {
    const std::int64_t target = targets[r];
    if (target == plan.ignored) {
      for (std::int64_t c = 0; c < plan.classes; ++c) y[c] = 0.0f;
      continue;
    }
    const Floats top = splat(shifts[0]), logarithm = splat(shifts[1]);
    map_row(y, x, plan.classes, [&](Floats v) __attribute__((always_inline)) {
      return exp_of_negative((v - top) - logarithm) * scale;
    });
    y[target] -= one;
  }
}

}  // namespace nimble::NIMBLE_ISA
