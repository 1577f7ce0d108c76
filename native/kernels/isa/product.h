// A few rows times a matrix that lies in panels, or nearly.
#pragma once

#include "tile.h"
#include "transpose.h"

namespace nimble::NIMBLE_ISA {

// A right-hand matrix in panels of 16 columns.
struct Panels {
  const float* at;
  std::int64_t row, panel;  // strides
};

// What is needed next, on its way to the second-level cache: rows of so many floats, line by line.
class Fetch {
 public:
  Fetch(const float* at, std::int64_t rows, std::int64_t row, std::int64_t floats)
      : at_(at), rows_(rows), row_(row), floats_(floats) {}

  static constexpr std::int64_t kLine = 64 / sizeof(float);
  std::int64_t lines() const { return rows_ * ((floats_ + kLine - 1) / kLine); }
  NIMBLE_INLINE_MEMBER void some(std::int64_t lines) {
    for (; lines > 0 && rows_ > 0; --lines) {
      __builtin_prefetch(at_ + done_, 0, 2);
      done_ += kLine;
      if (done_ < floats_) continue;
      done_ = 0;
      at_ += row_;
      --rows_;
    }
  }

 private:
  const float* at_;
  std::int64_t rows_, row_, floats_, done_ = 0;
};

// How a left-hand matrix lies: row by row, or column by column.
enum class Lies { kInRows, kInColumns };

// y[r, n] = factor[r] * x[r, k] w[k, n]; y's rows may be written up to a whole panel if kPadded.
// x_step lies between x's rows, or between its columns. With every kAtOnce of k, `lines` are fetched.
constexpr std::int64_t kAtOnce = 32;
template <int kRows, bool kPadded, Lies kLies>
[[gnu::noinline]] static void product(float* y, std::int64_t y_row, const float* x, std::int64_t x_step,
                                     const Panels& w, std::int64_t columns, std::int64_t k,
                                     const float* factor, Fetch* fetch, std::int64_t lines) {
  constexpr bool kInRows = kLies == Lies::kInRows;
  constexpr int kParts = kRows == 1 ? 4 : kRows <= 3 ? 2 : 1;
  for (std::int64_t n = 0; n < columns; n += kPanel) {
    Tile<kRows, 1, kParts> tile;
    tile.clear();
    const std::int64_t row = kInRows ? x_step : 1, step = kInRows ? 1 : x_step;
    const float* panel = w.at + n / kPanel * w.panel;
    const std::int64_t at_once = fetch ? kAtOnce : k;
    for (std::int64_t i = 0; i < k; i += at_once) {
      if (fetch) fetch->some(lines);
      tile.add(x + i * step, row, panel + i * w.row, w.row, 0, least(at_once, k - i), step);
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int c = 0; c < kPerPanel; ++c) {
        float* out = y + r * y_row + n + c * kLanes;
        const Floats value = tile.total(r, c) * splat(factor[r]);
        const std::int64_t left = columns - n - c * kLanes;
        if (kPadded || left >= kLanes) {
          store(out, value);
        } else if (left > 0) {
          store(out, value, left);
        }
      }
    }
  }
}

template <bool kPadded, Lies kLies = Lies::kInRows>
NIMBLE_INLINE void product_of(std::int64_t rows, float* y, std::int64_t y_row, const float* x,
                              std::int64_t x_step, const Panels& w, std::int64_t columns,
                              std::int64_t k, const float* factor, Fetch* fetch = nullptr,
                              std::int64_t lines = 0) {
  with_rows(rows, [&]<int kRows>() {
    product<kRows, kPadded, kLies>(y, y_row, x, x_step, w, columns, k, factor, fetch, lines);
  });
}

// A matrix turned into panels [column][16 rows], with zeros where there is no row.
NIMBLE_INLINE void pack_turned(float* out, const float* in, std::int64_t rows, std::int64_t row,
                               std::int64_t columns) {
  for (std::int64_t n = 0; n < rows; n += kPanel, out += columns * kPanel) {
    const std::int64_t there = least<std::int64_t>(kPanel, rows - n);
    transpose(out, in + n * row, columns, there, kPanel, row);
    for (std::int64_t c = 0; c < columns; ++c) {
      for (std::int64_t r = there; r < kPanel; ++r) out[c * kPanel + r] = 0.0f;
    }
  }
}

NIMBLE_INLINE float dot(const float* a, const float* b, std::int64_t n) {
  Floats s = splat(0.0f), t = s;
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    s = fma(load(a + i), load(b + i), s);
    t = fma(load(a + i + kLanes), load(b + i + kLanes), t);
  }
  for (; i + kLanes <= n; i += kLanes) s = fma(load(a + i), load(b + i), s);
  if (i < n) t = fma(load(a + i, n - i), load(b + i, n - i), t);
  return sum(s + t);
}

}  // namespace nimble::NIMBLE_ISA
