#include "../linear.h"

#include "program.h"
#include "tile.h"

namespace nimble::NIMBLE_ISA {
namespace {

template <class Element>
struct Matrices {
  float* y;
  const Element* x;
  const Element* w;
  const float* bias;
  const float* add;
};

// What is multiplied at a time: rows [row, row_end), and of each the columns [k, k_end). The first
// columns begin the sums, the others add to them.
struct Block {
  std::int64_t row, row_end, k, k_end;
};

// With every so many lines of weights, one is fetched that lies so far ahead.
struct Fetch {
  std::int64_t every, ahead;
};

// Of the input, what stays in the second-level cache while weights pass by.
constexpr std::int64_t kCached = 256 * 1024 / sizeof(float), kCachedColumns = 512;
constexpr std::int64_t kPanelsAtOnce = 2;  // of weights, which stay there for all rows of a block

// Rows [row, row + kRows) by kPanels panels.
template <int kRows, int kPanels, int kParts, class Element>
void tile_at(const LinearPlan& plan, const Matrices<Element>& at, const Block& block, const Fetch& fetch,
             std::int64_t row, std::int64_t panel) {
  Tile<kRows, kPanels, kParts, Element> tile;
  tile.clear();
  const std::int64_t w_row = panel * kPanel;
  tile.add_fetching(at.x + row * plan.x_stride + block.k, plan.x_stride,
                    at.w + plan.k * w_row + block.k * kPanel, plan.k * kPanel, block.k_end - block.k,
                    fetch.every, fetch.ahead);
  const bool first = block.k == 0;
#pragma GCC unroll 2
  for (int c = 0; c < kPanels * kPerPanel; ++c) {
    const std::int64_t column = panel * kPanel + c * kLanes;
    const std::int64_t left = plan.n - column;
    if (left <= 0) break;
    const bool whole = left >= kLanes;
    Floats bias = splat(0.0f);
    if (at.bias && first) bias = whole ? load(at.bias + column) : load(at.bias + column, left);
    const float* add = first ? at.add : at.y;
    const std::int64_t add_stride = first ? plan.add_stride : plan.y_stride;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      Floats value = tile.total(r, c) + bias;
      if (add) {
        const float* more = add + (row + r) * add_stride + column;
        value += whole ? load(more) : load(more, left);
      }
      float* y = at.y + (row + r) * plan.y_stride + column;
      whole ? store(y, value) : store(y, value, left);
    }
  }
}

// Few rows: one panel after the other, as they lie in memory, since a core fetches one stream faster
// than two; their sums are made in parts, so that there are enough of them to work on at the same time.
template <int kRows, class Element>
void rows_at(const LinearPlan& plan, const Matrices<Element>& at, const Block& block, const Fetch& fetch,
             std::int64_t row, std::int64_t panel, std::int64_t last) {
  constexpr int kParts = kRows == 1 ? 4 : kRows <= 3 ? 2 : 1;
  if constexpr (kWide > 1 && kRows >= kFewestWideRows) {
    for (; panel + kWide <= last; panel += kWide) {
      tile_at<kRows, kWide, 1>(plan, at, block, fetch, row, panel);
    }
  }
  for (; panel < last; ++panel) tile_at<kRows, 1, kParts>(plan, at, block, fetch, row, panel);
}

template <class Element>
void multiply(const LinearPlan& plan, const Matrices<Element>& at, const Block& block) {
  const std::int64_t rows = block.row_end - block.row, columns = block.k_end - block.k;
  const bool wide = plan.last_panel - plan.first_panel >= kWide;
  const std::int64_t most_rows = rows_together(wide ? kWideRows : kTileRows, plan.x_stride);
  const std::int64_t groups = (rows + most_rows - 1) / most_rows;
  // A group alone reads weights once, in order.
  const std::int64_t at_once = groups == 1 ? plan.last_panel : kPanelsAtOnce;
  for (std::int64_t p = plan.first_panel; p < plan.last_panel; p += at_once) {
    const std::int64_t last = least(p + at_once, plan.last_panel);
    // The next panels on their way to the second-level cache, one line at a time: every group
    // fetches others.
    Fetch fetch{groups == 1 ? columns + 1 : groups, at_once * plan.k * kPanel};
    in_groups(rows, most_rows, [&](std::int64_t row, std::int64_t count) {
      with_rows<kWideRows>(count, [&]<int kRows>() {
        rows_at<kRows>(plan, at, block, fetch, block.row + row, p, last);
      });
      fetch.ahead += kPanel;
    });
  }
}

// f(begin, end) for as few parts of at most `size` as can be, all nearly the same.
template <class F>
NIMBLE_INLINE void in_parts(std::int64_t all, std::int64_t size, F f) {
  const std::int64_t parts = (all + size - 1) / size;
  for (std::int64_t part = 0; part < parts; ++part) {
    f(all * part / parts, all * (part + 1) / parts);
  }
}

template <class Element>
NIMBLE_INLINE void linear_of(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const LinearPlan*>(call.plan);
  Matrices<Element> at{};
  std::size_t next = 0;
  at.y = call.operand<float>(next++);
  at.x = call.operand<const Element>(next++);
  at.w = call.operand<const Element>(next++);
  if (plan.bias) at.bias = call.operand<const float>(next++);
  if (plan.add) at.add = call.operand<const float>(next++);
  const std::int64_t k = plan.k;
  if (plan.m <= kWideRows || plan.m * k <= kCached) {
    multiply(plan, at, {0, plan.m, 0, k});
  } else {
    in_parts(plan.m, kCached / least(k, kCachedColumns), [&](std::int64_t row, std::int64_t end) {
      in_parts(k, most(kCachedColumns, kCached / (end - row)), [&](std::int64_t from, std::int64_t to) {
        multiply(plan, at, {row, end, from, to});
      });
    });
  }
  if (!plan.epilogue.present) return;
  const std::int64_t column = plan.first_panel * kPanel;
  const std::int64_t count = least(plan.last_panel * kPanel, plan.n) - column;
  for (std::int64_t r = 0; r < plan.m; ++r) {
    finish(plan.epilogue, call, at.y + r * plan.y_stride + column, r, column, count);
  }
}

}  // namespace

void linear(void* context) { linear_of<float>(context); }
void linear_bfloat16(void* context) { linear_of<Couple>(context); }

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
