#include "../matmul.h"

#include "product.h"
#include "program.h"
#include "transpose.h"
#include "walk.h"

namespace nimble::NIMBLE_ISA {
namespace {

constexpr float kOnes[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
static_assert(sizeof(kOnes) / sizeof(float) >= kTileRows);
constexpr std::int64_t kFewRows = 12;  // fewer are not worth packing what lies well already

// Columns [n, n + 16) of w, one row of 16 after the other, with zeros where there is no column.
void pack(const MatmulPlan& plan, float* out, const float* w, std::int64_t columns) {
  if (plan.w_column == 1 && columns == kPanel) {
    for (std::int64_t k = 0; k < plan.k; ++k, out += kPanel, w += plan.w_row) {
      for (int c = 0; c < kPanel; c += kLanes) store(out + c, load(w + c));
    }
    return;
  }
  if (plan.w_row == 1 && columns == kPanel) {
    transpose(out, w, plan.k, kPanel, kPanel, plan.w_column);
    return;
  }
  if (plan.w_column < plan.w_row) {
    for (std::int64_t k = 0; k < plan.k; ++k, out += kPanel, w += plan.w_row) {
      for (std::int64_t c = 0; c < kPanel; ++c) out[c] = c < columns ? w[c * plan.w_column] : 0.0f;
    }
    return;
  }
  constexpr std::int64_t kTall = 64;  // rows of the panel that stay in the first-level cache
  for (std::int64_t begin = 0; begin < plan.k; begin += kTall) {
    const std::int64_t end = least(begin + kTall, plan.k);
    for (std::int64_t c = 0; c < kPanel; ++c) {
      const float* from = w + c * plan.w_column;
      for (std::int64_t k = begin; k < end; ++k) {
        out[k * kPanel + c] = c < columns ? from[k * plan.w_row] : 0.0f;
      }
    }
  }
}

// Columns [n, n + columns) of w as they lie in memory; nothing where most of a line would be of no use.
Fetch fetch(const MatmulPlan& plan, const float* w, std::int64_t n, std::int64_t columns) {
  if (columns <= 0 || least(plan.w_row, plan.w_column) > Fetch::kLine) return {w, 0, 0, 0};
  const float* at = w + n * plan.w_column;
  if (plan.w_column < plan.w_row) return {at, plan.k, plan.w_row, columns * plan.w_column};
  return {at, columns, plan.w_column, plan.k * plan.w_row};
}

}  // namespace

void matmul(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const MatmulPlan*>(call.plan);
  auto* scratch = call.operand<float>(1);
  Walk walk{plan.batch};
  for (std::int64_t b = 0; b < plan.batch.count; ++b, walk.next()) {
    float* y = call.operand<float>(0) + walk.at[0];
    const float* x = call.operand<const float>(2) + walk.at[1];
    const float* w = call.operand<const float>(3) + walk.at[2];
    for (std::int64_t n = 0; n < plan.n; n += kPanel) {
      const std::int64_t columns = least<std::int64_t>(kPanel, plan.n - n);
      const float* panel = w + n * plan.w_column;
      std::int64_t w_row = plan.w_row;
      if (plan.w_column != 1 || columns < kPanel || plan.m > kFewRows) {
        pack(plan, scratch, panel, columns);
        panel = scratch;
        w_row = kPanel;
      }
      // The next panel arrives while this one is multiplied.
      const std::int64_t together = rows_together(kTileRows, plan.x_row);
      Fetch next = fetch(plan, w, n + kPanel, least<std::int64_t>(kPanel, plan.n - n - columns));
      const std::int64_t times = (plan.m + together - 1) / together * (plan.k / kAtOnce);
      const bool fetches = plan.batch.count == 1 && times > 0;
      const std::int64_t lines = fetches ? (next.lines() + times - 1) / times : 0;
      in_groups(plan.m, together, [&](std::int64_t row, std::int64_t rows) {
        product_of<false>(rows, y + row * plan.y_row + n, plan.y_row, x + row * plan.x_row,
                          plan.x_row, {panel, w_row, 0}, columns, plan.k, kOnes,
                          lines > 0 ? &next : nullptr, lines);
      });
    }
    if (!plan.epilogue.present) continue;
    for (std::int64_t r = 0; r < plan.m; ++r) {
      finish(plan.epilogue, call, y + r * plan.y_row, b * plan.m + r, 0, plan.n);
    }
  }
}

}  // namespace nimble::NIMBLE_ISA
