// The inner loop of matrix products: a few rows times panels of 16 columns, in registers.
#pragma once

#include "../linear.h"
#include "bfloat16.h"
#include "vec.h"

namespace nimble::NIMBLE_ISA {

// As many rows of a panel as registers hold. With AVX-512 they hold two panels, and more rows: a core
// that multiplies two vectors at a time loads but two as well, so that a panel by itself, one number
// of every row and one vector of weights a multiplication, keeps it waiting for what it loads.
inline constexpr int kTileRows = kPerPanel == 1 ? 10 : 6;
inline constexpr int kWide = kPerPanel == 1 ? 2 : 1;  // panels at once
inline constexpr int kWideRows = kWide > 1 ? 14 : kTileRows;
// Fewer rows wait for weights, which a core fetches faster one panel after the other.
inline constexpr int kFewestWideRows = 4;

// f.operator()<rows>() for rows from 1 to kMost.
template <int kMost = kTileRows, class F>
NIMBLE_INLINE void with_rows(std::int64_t rows, F f) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return with_rows<kMost - 1>(rows, f);
  }
  f.template operator()<kMost>();
}

// Of so many rows together, that lie `stride` floats apart. Where that is a multiple of a page, their
// columns share a set of the first-level cache, and those that it has no room for come anew for
// every multiplication; a way is left for the weights.
NIMBLE_INLINE std::int64_t rows_together(std::int64_t rows, std::int64_t stride) {
  constexpr std::int64_t kPage = 4096 / sizeof(float), kWays = 8;
  return stride % kPage == 0 ? least(rows, kWays - 1) : rows;
}

// f(row, rows) for as few groups of at most `most_rows` as can be, all nearly the same height.
template <class F>
NIMBLE_INLINE void in_groups(std::int64_t all, std::int64_t most_rows, F f) {
  const std::int64_t groups = (all + most_rows - 1) / most_rows;
  std::int64_t row = 0;
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t rows = (all - row + groups - group - 1) / (groups - group);
    f(row, rows);
    row += rows;
  }
}

// Sums of kRows rows and kPanels panels. kParts independent sums of each hide the latency of FMA. An
// element is a float, or a couple of numbers in bfloat16.
template <int kRows, int kPanels, int kParts, class Element = float>
struct Tile {
  Floats sum[kParts][kRows][kPanels * kPerPanel];

  [[gnu::always_inline]] inline void clear() {
#pragma GCC unroll 32
    for (int i = 0; i < kParts * kRows * kPanels * kPerPanel; ++i) (&sum[0][0][0])[i] = splat(0.0f);
  }

  // += x[rows, k] w[k, columns]; w's rows are w_row apart, its panels w_panel; x's columns x_step.
  [[gnu::always_inline]] inline void add(const Element* x, std::int64_t x_row, const Element* w,
                                         std::int64_t w_row, std::int64_t w_panel, std::int64_t k,
                                         std::int64_t x_step = 1) {
    std::int64_t i = 0;
    for (; i + kParts <= k; i += kParts) {
#pragma GCC unroll 8
      for (int part = 0; part < kParts; ++part) {
        step(part, x + (i + part) * x_step, x_row, w + (i + part) * w_row, w_panel);
      }
    }
    for (; i < k; ++i) step(0, x + i * x_step, x_row, w + i * w_row, w_panel);
  }

  // The same for rows of w that follow each other, while with every so many of them one of each panel
  // is fetched that lies so far ahead.
  [[gnu::always_inline]] inline void add_fetching(const Element* x, std::int64_t x_row, const Element* w,
                                                  std::int64_t w_panel, std::int64_t k,
                                                  std::int64_t every, std::int64_t ahead) {
    std::int64_t i = 0;
    while (kParts == 1 && i + every <= k) {
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) {
        __builtin_prefetch(w + i * kPanel + p * w_panel + ahead, 0, 2);
      }
      for (const std::int64_t stop = i + every; i < stop; ++i) {
        step(0, x + i, x_row, w + i * kPanel, w_panel);
      }
    }
    add(x + i, x_row, w + i * kPanel, kPanel, w_panel, k - i);
  }

  [[gnu::always_inline]] inline void step(int part, const Element* x, std::int64_t x_row,
                                          const Element* w, std::int64_t w_panel) {
    decltype(load(w)) column[kPanels * kPerPanel];
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 2
      for (int c = 0; c < kPerPanel; ++c) column[p * kPerPanel + c] = load(w + p * w_panel + c * kLanes);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const auto value = splat(x[r * x_row]);
#pragma GCC unroll 8
      for (int c = 0; c < kPanels * kPerPanel; ++c) {
        sum[part][r][c] = fma(value, column[c], sum[part][r][c]);
      }
    }
  }

  [[gnu::always_inline]] inline Floats total(int row, int column) const {
    Floats result = sum[0][row][column];
#pragma GCC unroll 8
    for (int part = 1; part < kParts; ++part) result += sum[part][row][column];
    return result;
  }
};

}  // namespace nimble::NIMBLE_ISA
