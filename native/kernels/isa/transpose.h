// Matrices turned, eight by eight elements in registers.
#pragma once

#include "vec.h"

namespace nimble::NIMBLE_ISA {

// turned[r][c] = in[r + c * from]
NIMBLE_INLINE void turn_8x8(Eight (&turned)[8], const float* in, std::int64_t from) {
  Eight r[8], s[8];
  for (int i = 0; i < 8; ++i) r[i] = load_eight(in + i * from);
  for (int i = 0; i < 8; i += 2) {
    s[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    s[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int k = 0; k < 2; ++k) {
      r[i + 2 * k] = __builtin_shufflevector(s[i + k], s[i + 2 + k], 0, 1, 8, 9, 4, 5, 12, 13);
      r[i + 2 * k + 1] =
          __builtin_shufflevector(s[i + k], s[i + 2 + k], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; ++i) {
    turned[i] = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    turned[i + 4] = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// kWide columns, 8 or 16: those of a row are written together, since rows a page apart push each
// other out of the cache.
template <int kWide>
NIMBLE_INLINE void transpose_8(float* out, std::int64_t to, const float* in, std::int64_t from) {
  Eight turned[kWide / 8][8];
  for (int c = 0; c < kWide / 8; ++c) turn_8x8(turned[c], in + c * 8 * from, from);
  for (int r = 0; r < 8; ++r) {
    for (int c = 0; c < kWide / 8; ++c) store(out + r * to + c * 8, turned[c][r]);
  }
}

// out[r * to + c] = in[r + c * from]. Sixteen rows at a time use up the cache lines they read.
template <class T>
[[gnu::noinline]] void transpose(T* out, const T* in, std::int64_t rows, std::int64_t cols, std::int64_t to,
               std::int64_t from) {
  for (std::int64_t r = 0; r < rows; r += 16) {
    const std::int64_t height = least<std::int64_t>(16, rows - r);
    std::int64_t width;
    for (std::int64_t c = 0; c < cols; c += width) {
      width = cols - c >= 16 ? 16 : least<std::int64_t>(8, cols - c);
      std::int64_t done = 0;
      if constexpr (sizeof(T) == 4) {
        for (; width >= 8 && done + 8 <= height; done += 8) {
          T* to_here = out + (r + done) * to + c;
          const T* from_here = in + r + done + c * from;
          width == 16 ? transpose_8<16>(to_here, to, from_here, from)
                      : transpose_8<8>(to_here, to, from_here, from);
        }
      }
      for (; done < height; ++done) {
        for (std::int64_t i = 0; i < width; ++i) {
          out[(r + done) * to + c + i] = in[r + done + (c + i) * from];
        }
      }
    }
  }
}

}  // namespace nimble::NIMBLE_ISA
