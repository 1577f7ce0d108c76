// A few rows times a matrix that lies in panels, or nearly.
#pragma once

#include "tile.h"

namespace nimble::NIMBLE_ISA {

// A right-hand matrix in panels of 16 columns.
struct Panels {
  const float* at;
  std::int64_t row, panel;  // strides
};

// y[r, n] = factor[r] * x[r, k] w[k, n]; y's rows may be written up to a whole panel if kPadded.
template <int kRows, bool kPadded>
[[gnu::noinline]] static void product(float* y, std::int64_t y_row, const float* x, std::int64_t x_row, const Panels& w,
             std::int64_t columns, std::int64_t k, const float* factor) {
  constexpr int kParts = kRows == 1 ? 4 : kRows <= 3 ? 2 : 1;
  for (std::int64_t n = 0; n < columns; n += kPanel) {
    Tile<kRows, 1, kParts> tile;
    tile.clear();
    tile.add(x, x_row, w.at + n / kPanel * w.panel, w.row, 0, k);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int c = 0; c < 2; ++c) {
        float* out = y + r * y_row + n + c * 8;
        const F8 value = tile.total(r, c) * splat(factor[r]);
        const std::int64_t left = columns - n - c * 8;
        if (kPadded || left >= 8) {
          store(out, value);
        } else if (left > 0) {
          store(out, value, left);
        }
      }
    }
  }
}

template <bool kPadded>
NIMBLE_INLINE void product_of(std::int64_t rows, float* y, std::int64_t y_row, const float* x, std::int64_t x_row,
                const Panels& w, std::int64_t columns, std::int64_t k, const float* factor) {
  switch (rows) {
    case 1: return product<1, kPadded>(y, y_row, x, x_row, w, columns, k, factor);
    case 2: return product<2, kPadded>(y, y_row, x, x_row, w, columns, k, factor);
    case 3: return product<3, kPadded>(y, y_row, x, x_row, w, columns, k, factor);
    case 4: return product<4, kPadded>(y, y_row, x, x_row, w, columns, k, factor);
    case 5: return product<5, kPadded>(y, y_row, x, x_row, w, columns, k, factor);
    default: return product<6, kPadded>(y, y_row, x, x_row, w, columns, k, factor);
  }
}

}  // namespace nimble::NIMBLE_ISA
