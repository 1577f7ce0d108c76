// The inner loop of matrix products: a few rows times panels of 16 columns, in registers.
#pragma once

#include "../linear.h"
#include "vec.h"

namespace nimble::NIMBLE_ISA {

// Sums of kRows rows and kPanels panels. kParts independent sums of each hide the latency of FMA.
template <int kRows, int kPanels, int kParts>
struct Tile {
  F8 sum[kParts][kRows][kPanels * 2];

  [[gnu::always_inline]] inline void clear() {
#pragma GCC unroll 16
    for (int i = 0; i < kParts * kRows * kPanels * 2; ++i) (&sum[0][0][0])[i] = splat(0.0f);
  }

  // += x[rows, k] w[k, columns]; w's rows are w_row apart, its panels w_panel; x's columns x_step.
  [[gnu::always_inline]] inline void add(const float* x, std::int64_t x_row, const float* w,
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

  [[gnu::always_inline]] inline void step(int part, const float* x, std::int64_t x_row,
                                          const float* w, std::int64_t w_panel) {
    F8 column[kPanels * 2];
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      column[2 * p] = load(w + p * w_panel);
      column[2 * p + 1] = load(w + p * w_panel + 8);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F8 value = splat(x[r * x_row]);
#pragma GCC unroll 8
      for (int c = 0; c < kPanels * 2; ++c) {
        sum[part][r][c] = fma(value, column[c], sum[part][r][c]);
      }
    }
  }

  [[gnu::always_inline]] inline F8 total(int row, int column) const {
    F8 result = sum[0][row][column];
#pragma GCC unroll 8
    for (int part = 1; part < kParts; ++part) result += sum[part][row][column];
    return result;
  }
};

}  // namespace nimble::NIMBLE_ISA
