#include "../gather.h"

#include <cstring>

#include "../../core/kernels.h"
#include "reduce.h"
#include "walk.h"

namespace nimble::NIMBLE_ISA {
namespace {

// The first that is NaN, or else the first of the largest (smallest).
std::int64_t arg_of(const float* x, std::int64_t n, std::int64_t step, bool smallest) {
  if (step == 1 && !smallest && n >= 16) {
    const float top = largest_of(x, n);
    for (std::int64_t i = 0;; ++i) {
      if (x[i] == top || x[i] != x[i]) return i;
    }
  }
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const float value = x[i * step], best = x[found * step];
    if (value != value) return i;
    if (smallest ? value < best : value > best) found = i;
  }
  return found;
}

}  // namespace

void gather_rows(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const GatherPlan*>(call.plan);
  auto* out = call.operand<char>(0);
  const auto* in = call.operand<const char>(1);
  const auto* indices = call.operand<const std::int64_t>(2);
  for (std::int64_t o = 0; o < plan.outer; ++o) {
    for (std::int64_t i = 0; i < plan.count; ++i) {
      const std::int64_t given = indices[o * plan.index_outer + i * plan.index_step];
      const std::int64_t index = plan.wraps && given < 0 ? given + plan.table : given;
      if (index < 0 || index >= plan.table) refuse_index(given, plan.table);
      if (plan.bytes == 0) continue;
      std::memcpy(out + o * plan.out_outer + i * plan.out_row,
                  in + o * plan.in_outer + index * plan.in_row,
                  static_cast<std::size_t>(plan.bytes));
    }
  }
}

void scatter_rows(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const ScatterPlan*>(call.plan);
  auto* out = call.operand<float>(0);
  const auto* in = call.operand<const float>(1);
  const auto* indices = call.operand<const std::int64_t>(2);
  for (std::int64_t r = 0; r < plan.rows; ++r) {
    std::memset(out + r * plan.out_row, 0, static_cast<std::size_t>(plan.length) * sizeof(float));
  }
  for (std::int64_t i = 0; i < plan.count; ++i) {
    if (indices[i] < 0 || indices[i] >= plan.table) refuse_index(indices[i], plan.table);
    const std::int64_t row = indices[i] - plan.first;
    if (indices[i] == plan.skipped || row < 0 || row >= plan.rows) continue;
    float* to = out + row * plan.out_row;
    const float* from = in + i * plan.in_row;
    std::int64_t c = 0;
    for (; c + kLanes <= plan.length; c += kLanes) store(to + c, load(to + c) + load(from + c));
    for (; c < plan.length; ++c) to[c] += from[c];
  }
}

void argmax(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const ArgPlan*>(call.plan);
  Walk walk{plan.rows};
  for (std::int64_t r = 0; r < plan.rows.count; ++r, walk.next()) {
    call.operand<std::int64_t>(0)[walk.at[0]] =
        arg_of(call.operand<const float>(1) + walk.at[1], plan.length, plan.step, plan.least);
  }
}

void cumsum(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const CumsumPlan*>(call.plan);
  Walk walk{plan.rows};
  for (std::int64_t r = 0; r < plan.rows.count; ++r, walk.next()) {
    float* out = call.operand<float>(0) + walk.at[0];
    const float* in = call.operand<const float>(1) + walk.at[1];
    double total = 0.0;  // as PyTorch does
    for (std::int64_t i = 0; i < plan.length; ++i) {
      total += static_cast<double>(in[i * plan.in_step]);
      out[i * plan.out_step] = static_cast<float>(total);
    }
  }
}

}  // namespace nimble::NIMBLE_ISA
