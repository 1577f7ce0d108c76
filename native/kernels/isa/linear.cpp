#include "../linear.h"

#include "program.h"
#include "tile.h"

namespace nimble::NIMBLE_ISA {
namespace {

struct Matrices {
  float* y;
  const float* x[2];
  const float* w[2];
  const float* bias;
  const float* add;
};

// Rows [row, row + kRows), panels [panel, panel + kPanels).
template <int kRows, int kPanels, int kParts>
void tile_at(const LinearPlan& plan, const Matrices& at, std::int64_t row, std::int64_t panel) {
  Tile<kRows, kPanels, kParts> tile;
  tile.clear();
  for (int i = 0; i < plan.pairs; ++i) {
    const std::int64_t w_panel = plan.k[i] * kPanel;
    tile.add(at.x[i] + row * plan.x_stride[i], plan.x_stride[i], at.w[i] + panel * w_panel, kPanel,
             w_panel, plan.k[i]);
  }
#pragma GCC unroll 8
  for (int c = 0; c < kPanels * kPerPanel; ++c) {
    const std::int64_t column = panel * kPanel + c * kLanes;
    const std::int64_t left = plan.n - column;
    if (left <= 0) break;
    const bool whole = left >= kLanes;
    Floats bias = splat(0.0f);
    if (at.bias) bias = whole ? load(at.bias + column) : load(at.bias + column, left);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      Floats value = tile.total(r, c) + bias;
      if (at.add) {
        const float* add = at.add + (row + r) * plan.add_stride + column;
        value += whole ? load(add) : load(add, left);
      }
      float* y = at.y + (row + r) * plan.y_stride + column;
      whole ? store(y, value) : store(y, value, left);
    }
  }
}

// One panel after the other, as they lie in memory: a core fetches one stream faster than two. Few
// rows make their sums in parts, so that there are enough of them to work on at the same time.
template <int kRows>
void rows_at(const LinearPlan& plan, const Matrices& at, std::int64_t row, std::int64_t panel,
             std::int64_t last) {
  constexpr int kParts = kRows == 1 ? 4 : kRows <= 3 ? 2 : 1;
  for (; panel < last; ++panel) tile_at<kRows, 1, kParts>(plan, at, row, panel);
}

void all_rows(const LinearPlan& plan, const Matrices& at, std::int64_t panel, std::int64_t last) {
  in_groups(plan.m, [&](std::int64_t row, std::int64_t rows) {
    with_rows(rows, [&]<int kRows>() { rows_at<kRows>(plan, at, row, panel, last); });
  });
}

}  // namespace

void linear(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const LinearPlan*>(call.plan);
  Matrices at{};
  std::size_t next = 0;
  at.y = call.operand<float>(next++);
  for (int i = 0; i < plan.pairs; ++i) {
    at.x[i] = call.operand<const float>(next++);
    at.w[i] = call.operand<const float>(next++);
  }
  if (plan.bias) at.bias = call.operand<const float>(next++);
  if (plan.add) at.add = call.operand<const float>(next++);
  if (plan.m <= kTileRows) {
    all_rows(plan, at, plan.first_panel, plan.last_panel);
  } else {
    // Weights are read from memory once: a panel stays in the cache for all groups of rows.
    for (std::int64_t p = plan.first_panel; p < plan.last_panel; p += 2) {
      all_rows(plan, at, p, least(p + 2, plan.last_panel));
    }
  }
  if (!plan.epilogue.present) return;
  const std::int64_t column = plan.first_panel * kPanel;
  const std::int64_t count = least(plan.last_panel * kPanel, plan.n) - column;
  for (std::int64_t r = 0; r < plan.m; ++r) {
    finish(plan.epilogue, call, at.y + r * plan.y_stride + column, r, column, count);
  }
}

void pack_linear(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const PackPlan*>(call.plan);
  auto* out = call.operand<float>(0);
  const auto* in = call.operand<const float>(1);
  for (std::int64_t n = 0; n < plan.n; n += kPanel) {
    const std::int64_t columns = least<std::int64_t>(kPanel, plan.n - n);
    for (std::int64_t k = 0; k < plan.k; ++k, out += kPanel) {
      for (std::int64_t c = 0; c < columns; ++c) {
        out[c] = in[(n + c) * plan.n_stride + k * plan.k_stride];
      }
      for (std::int64_t c = columns; c < kPanel; ++c) out[c] = 0.0f;
    }
  }
}

}  // namespace nimble::NIMBLE_ISA
