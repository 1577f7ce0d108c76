// Depthwise convolution: every channel by itself, eight or sixteen of them side by side.
#include "../convolution.h"

#include "program.h"

namespace nimble::NIMBLE_ISA {
namespace {

struct Sweep {
  const ConvolutionPlan& plan;
  const float* src;
  float* dst;
  const float* weights;  // [tap][channel]
  const float* bias;
  const float* added;
  std::int64_t channels;

  [[gnu::always_inline]] inline F8 ended(F8 x) const {
    if (plan.low < plan.high) x = between(x, plan.low, plan.high);
    return x;
  }

  template <bool Whole>
  [[gnu::always_inline]] static inline F8 read(const float* p, std::int64_t count) {
    return Whole ? load(p) : load(p, count);
  }

  // M neighbouring pixels of a row, eight channels or `count` < 8. A row of the input is gone
  // through once: each of its pixels meets the taps that use it. Rows [i0, i1) of the kernel are
  // inside the image; columns outside of it are skipped.
  template <int M, int K, int S, bool Whole>
  void tile(const float* x, std::int64_t left, std::int64_t i0, std::int64_t i1, float* to,
            const float* plus, std::int64_t channel, std::int64_t count) const {
    constexpr int kAcross = (M - 1) * S + K;
    F8 acc[M];
    const F8 start = bias ? read<Whole>(bias + channel, count) : F8{};
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) acc[m] = start;
    const bool inside = left >= 0 && left + kAcross <= plan.width;
    const float* w = weights + i0 * K * channels + channel;
    x += i0 * plan.dilation_h * plan.src.row + channel;
    for (std::int64_t i = i0; i < i1; ++i, w += K * channels, x += plan.dilation_h * plan.src.row) {
      F8 taps[K];
#pragma GCC unroll 7
      for (int j = 0; j < K; ++j) taps[j] = read<Whole>(w + j * channels, count);
      const float* pixel = x;
#pragma GCC unroll 24
      for (int p = 0; p < kAcross; ++p, pixel += plan.src.pixel) {
        if (!inside && (left + p < 0 || left + p >= plan.width)) continue;
        const F8 value = read<Whole>(pixel, count);
#pragma GCC unroll 7
        for (int j = 0; j < K; ++j) {
          if ((p - j) % S == 0 && p >= j && (p - j) / S < M) {
            acc[(p - j) / S] = fma(value, taps[j], acc[(p - j) / S]);
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      F8 sum = acc[m];
      if (added) sum += read<Whole>(plus + m * plan.added.pixel + channel, count);
      if (Whole) {
        store(to + m * plan.dst.pixel + channel, ended(sum));
      } else {
        store(to + m * plan.dst.pixel + channel, ended(sum), count);
      }
    }
  }

  // Any kernel, one pixel.
  void single(const float* x, std::int64_t left, std::int64_t i0, std::int64_t i1, float* to,
              const float* plus, std::int64_t channel, std::int64_t count) const {
    F8 acc = bias ? load(bias + channel, count) : F8{};
    for (std::int64_t i = i0; i < i1; ++i) {
      for (std::int64_t j = 0; j < plan.kernel_w; ++j) {
        const std::int64_t column = left + j * plan.dilation_w;
        if (column < 0 || column >= plan.width) continue;
        const float* at = x + i * plan.dilation_h * plan.src.row + j * plan.dilation_w * plan.src.pixel;
        const F8 tap = load(weights + (i * plan.kernel_w + j) * channels + channel, count);
        acc = fma(load(at + channel, count), tap, acc);
      }
    }
    if (added) acc += load(plus + channel, count);
    store(to + channel, ended(acc), count);
  }

  // All channels of M pixels before the next ones, so that memory is read as it lies.
  template <int M, int K, int S>
  void tiles(const float* x, std::int64_t left, std::int64_t i0, std::int64_t i1, float* to,
             const float* plus, std::int64_t first, std::int64_t last) const {
    std::int64_t c = first;
    for (; c + 8 <= last; c += 8) tile<M, K, S, true>(x, left, i0, i1, to, plus, c, 8);
    if (c < last) tile<M, K, S, false>(x, left, i0, i1, to, plus, c, last - c);
  }

  template <int K, int S>
  void row(const float* from, std::int64_t i0, std::int64_t i1, float* to, const float* plus,
           std::int64_t first, std::int64_t last) const {
    for (std::int64_t x = 0; x < plan.out_width;) {
      const std::int64_t left = x * S - plan.left, rest = plan.out_width - x;
      const float* corner = from + left * plan.src.pixel;
      float* here = to + x * plan.dst.pixel;
      const float* more = plus ? plus + x * plan.added.pixel : nullptr;
      if (rest >= 8) {
        tiles<8, K, S>(corner, left, i0, i1, here, more, first, last);
        x += 8;
      } else if (rest == 7) {
        tiles<7, K, S>(corner, left, i0, i1, here, more, first, last);
        x += 7;
      } else if (rest >= 4) {
        tiles<4, K, S>(corner, left, i0, i1, here, more, first, last);
        x += 4;
      } else if (rest >= 2) {
        tiles<2, K, S>(corner, left, i0, i1, here, more, first, last);
        x += 2;
      } else {
        tiles<1, K, S>(corner, left, i0, i1, here, more, first, last);
        x += 1;
      }
    }
  }

  void row(std::int64_t image, std::int64_t y, std::int64_t first, std::int64_t last) const {
    const std::int64_t top = (y + plan.first_row) * plan.stride_h - plan.top;
    std::int64_t i0 = 0, i1 = plan.kernel_h;
    while (i0 < i1 && top + i0 * plan.dilation_h < 0) ++i0;
    while (i0 < i1 && top + (i1 - 1) * plan.dilation_h >= plan.height) --i1;
    const float* from = src + image * plan.src.batch + top * plan.src.row;
    float* to = dst + image * plan.dst.batch + y * plan.dst.row;
    const float* plus = added ? added + image * plan.added.batch + y * plan.added.row : nullptr;
    const std::int64_t kind = plan.dilation_w == 1 && plan.stride_w <= 2
                                  ? plan.kernel_w * 10 + plan.stride_w
                                  : 0;
    switch (kind) {
      case 31: return row<3, 1>(from, i0, i1, to, plus, first, last);
      case 32: return row<3, 2>(from, i0, i1, to, plus, first, last);
      case 51: return row<5, 1>(from, i0, i1, to, plus, first, last);
      case 52: return row<5, 2>(from, i0, i1, to, plus, first, last);
      case 71: return row<7, 1>(from, i0, i1, to, plus, first, last);
      case 72: return row<7, 2>(from, i0, i1, to, plus, first, last);
      default: break;
    }
    for (std::int64_t x = 0; x < plan.out_width; ++x) {
      const std::int64_t left = x * plan.stride_w - plan.left;
      for (std::int64_t c = first; c < last; c += 8) {
        single(from + left * plan.src.pixel, left, i0, i1, to + x * plan.dst.pixel,
               plus ? plus + x * plan.added.pixel : nullptr, c, least<std::int64_t>(8, last - c));
      }
    }
  }
};

}  // namespace

void depthwise(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const ConvolutionPlan*>(call.plan);
  const Sweep sweep{plan, call.operand<const float>(1), call.operand<float>(0),
                    call.operand<const float>(2),
                    plan.bias ? call.operand<const float>(3) : nullptr,
                    plan.add ? call.operand<const float>(plan.bias ? 4 : 3) : nullptr,
                    plan.groups};
  const std::int64_t first = plan.first_panel * kPanel;
  const std::int64_t last = least(plan.groups, plan.last_panel * kPanel);
  const std::int64_t rows = plan.last_row - plan.first_row;
  for (std::int64_t image = 0; image < plan.batch; ++image) {
    for (std::int64_t y = 0; y < rows; ++y) {
      sweep.row(image, y, first, last);
      if (!plan.epilogue.present) continue;
      for (std::int64_t x = 0; x < plan.out_width; ++x) {
        float* to = sweep.dst + image * plan.dst.batch + y * plan.dst.row + x * plan.dst.pixel;
        for (std::int64_t c = first; c < last; c += kMaxBlock) {
          finish(plan.epilogue, call, to + c, (image * rows + y) * plan.out_width + x, c,
                 least<std::int64_t>(kMaxBlock, last - c));
        }
      }
    }
  }
}

}  // namespace nimble::NIMBLE_ISA
