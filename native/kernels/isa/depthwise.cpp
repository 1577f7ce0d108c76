// Depthwise convolution: every channel by itself, a vector of them side by side.
#include "../convolution.h"

#include "math.h"
#include "program.h"

namespace nimble::NIMBLE_ISA {
namespace {

// Neighbouring pixels of one or two rows of the output, and what they are made from.
struct Strip {
  const float* rows[kMaxTaps + 1];  // of the input, from the strip's first pixel; null: padding
  std::int64_t count;               // of rows
  std::int64_t first, last;         // pixels of a row that are inside the image
  float* to;
  const float* plus;
};

struct Sweep {
  const ConvolutionPlan& plan;
  const float* src;
  float* dst;
  const float* weights;  // [tap][channel]
  const float* bias;
  const float* added;
  const Activation activation;  // of a block, while it is in the first-level cache
  const Floats low, high;           // infinite where nothing is clamped
  const bool silu;                  // in place of the bounds

  template <bool Whole>
  [[gnu::always_inline]] static inline Floats read(const float* p, std::int64_t count) {
    return Whole ? load(p) : load(p, count);
  }

  template <bool Whole>
  [[gnu::always_inline]] inline void put(float* to, std::int64_t count, Floats x) const {
    x = between(x, low, high);
    Whole ? store(to, x) : store(to, x, count);
  }

  // M pixels of R rows, a vector of channels or `count` of one. A row of the input is gone through once: each
  // of its pixels meets all taps that use it. Only the first and last K - 1 can be padding, and
  // nothing of what is `Inside`.
  template <int M, int K, int S, int R, bool Whole, bool Inside>
  [[gnu::always_inline]] inline void block(const Strip& strip, std::int64_t channel,
                                           std::int64_t count) const {
    constexpr int kAcross = (M - 1) * S + K;
    Floats acc[R][M];
    const Floats start = bias ? read<Whole>(bias + channel, count) : Floats{};
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) acc[r][m] = start;
    }
    const auto meet = [&](int i, bool (&uses)[R]) __attribute__((always_inline)) {
      if (!Inside && !strip.rows[i]) return;
      Floats taps[R][K];
#pragma GCC unroll 2
      for (int r = 0; r < R; ++r) {
        if (!uses[r]) continue;
        const float* w = weights + (i - r * S) * K * plan.tap_stride + channel;
#pragma GCC unroll 7
        for (int j = 0; j < K; ++j) taps[r][j] = read<Whole>(w + j * plan.tap_stride, count);
      }
      const float* x = strip.rows[i] + channel;
#pragma GCC unroll 24
      for (int p = 0; p < kAcross; ++p) {
        if (!Inside && p < K - 1 && p < strip.first) continue;
        if (!Inside && p > kAcross - K && p >= strip.last) continue;
        const Floats value = read<Whole>(x + p * plan.src.pixel, count);
#pragma GCC unroll 2
        for (int r = 0; r < R; ++r) {
          if (!uses[r]) continue;
#pragma GCC unroll 7
          for (int j = 0; j < K; ++j) {
            if ((p - j) % S == 0 && p >= j && (p - j) / S < M) {
              acc[r][(p - j) / S] = fma(value, taps[r][j], acc[r][(p - j) / S]);
            }
          }
        }
      }
    };
    if constexpr (R == 1) {
      bool uses[1] = {true};
      for (int i = 0; i < strip.count; ++i) meet(i, uses);
    } else {
#pragma GCC unroll 8
      for (int i = 0; i < S + K; ++i) {
        bool uses[2] = {i < K, i >= S};
        meet(i, uses);
      }
    }
    if (strip.plus) {
      const float* plus = strip.plus + channel;
#pragma GCC unroll 2
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) {
          acc[r][m] += read<Whole>(plus + r * plan.added.row + m * plan.added.pixel, count);
        }
      }
    }
    float* const to = strip.to + channel;
    const std::int64_t row = plan.dst.row, pixel = plan.dst.pixel;
    if (Whole && silu) {
#pragma GCC unroll 2
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) store(to + r * row + m * pixel, silu_of(acc[r][m]));
      }
      return;
    }
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) put<Whole>(to + r * row + m * pixel, count, acc[r][m]);
    }
  }

  // All channels of a few pixels before the next ones, so that memory is read as it lies.
  template <int M, int K, int S, int R, bool Inside>
  [[gnu::noinline]] void blocks(const Strip& strip) const {
    std::int64_t c = plan.first_panel * kPanel;
    const std::int64_t last = least(plan.groups, plan.last_panel * kPanel);
    for (; c + kLanes <= last; c += kLanes) {
      block<M, K, S, R, true, Inside>(strip, c, kLanes);
      if (!silu) activate(strip, R, M, c, kLanes);
    }
    if (c == last) return;
    block<M, K, S, R, false, false>(strip, c, last - c);
    activate(strip, R, M, c, last - c);
  }

  [[gnu::always_inline]] inline void activate(const Strip& strip, std::int64_t rows,
                                              std::int64_t pixels, std::int64_t channel,
                                              std::int64_t count) const {
    if (!activation) return;
    for (std::int64_t r = 0; r < rows; ++r) {
      activation(strip.to + r * plan.dst.row + channel, plan.dst.pixel, pixels, count);
    }
  }

  template <int K, int S, int R>
  void rows(Strip strip) const {
    bool whole = true;
    for (std::int64_t i = 0; i < strip.count; ++i) whole = whole && strip.rows[i];
    for (std::int64_t x = 0; x < plan.out_width;) {
      const std::int64_t left = x * S - plan.left, rest = plan.out_width - x;
      strip.first = -left;
      strip.last = plan.width - left;
      const auto some = [&]<int M>() {
        const bool inside = whole && strip.first <= 0 && strip.last >= (M - 1) * S + K;
        inside ? blocks<M, K, S, R, true>(strip) : blocks<M, K, S, R, false>(strip);
        for (std::int64_t i = 0; i < strip.count; ++i) {
          if (strip.rows[i]) strip.rows[i] += M * S * plan.src.pixel;
        }
        strip.to += M * plan.dst.pixel;
        if (strip.plus) strip.plus += M * plan.added.pixel;
        x += M;
      };
      constexpr int kMost = R == 1 ? 8 : 4;
      if (R == 1 && rest == 7) some.template operator()<R == 1 ? 7 : 1>();
      else if (rest >= kMost) some.template operator()<kMost>();
      else if (rest >= 4) some.template operator()<4>();
      else if (rest >= 2) some.template operator()<2>();
      else some.template operator()<1>();
    }
  }

  // Any kernel, one pixel after the other.
  void any_kernel(const Strip& strip) const {
    const std::int64_t last = least(plan.groups, plan.last_panel * kPanel);
    for (std::int64_t x = 0; x < plan.out_width; ++x) {
      for (std::int64_t c = plan.first_panel * kPanel; c < last; c += kLanes) {
        const std::int64_t count = least<std::int64_t>(kLanes, last - c);
        Floats acc = bias ? load(bias + c, count) : Floats{};
        for (std::int64_t i = 0; i < strip.count; ++i) {
          for (std::int64_t j = 0; strip.rows[i] && j < plan.kernel_w; ++j) {
            const std::int64_t column = x * plan.stride_w - plan.left + j * plan.dilation_w;
            if (column < 0 || column >= plan.width) continue;
            const float* w = weights + (i * plan.kernel_w + j) * plan.tap_stride + c;
            const float* from = strip.rows[i] + (column + plan.left) * plan.src.pixel + c;
            acc = fma(load(from, count), load(w, count), acc);
          }
        }
        if (strip.plus) acc += load(strip.plus + x * plan.added.pixel + c, count);
        float* const to = strip.to + x * plan.dst.pixel + c;
        put<false>(to, count, acc);
        if (activation) activation(to, 0, 1, count);
      }
    }
  }

  Strip strip_at(std::int64_t image, std::int64_t y, std::int64_t count) const {
    Strip strip;
    strip.count = count;
    const float* from = src + image * plan.src.batch - plan.left * plan.src.pixel;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = (y + plan.first_row) * plan.stride_h - plan.top + i * plan.dilation_h;
      const bool inside = row >= 0 && row < plan.height;
      strip.rows[i] = inside ? from + row * plan.src.row : nullptr;
    }
    strip.to = dst + image * plan.dst.batch + y * plan.dst.row;
    strip.plus = added ? added + image * plan.added.batch + y * plan.added.row : nullptr;
    return strip;
  }

  // Which of the kernels below fits.
  std::int64_t kind() const {
    const std::int64_t right =
        (plan.out_width - 1) * plan.stride_w - plan.left + plan.kernel_w - plan.width;
    const bool thin = plan.left < plan.kernel_w && right < plan.kernel_w;
    return plan.dilation_w == 1 && plan.stride_w <= 2 && thin ? plan.kernel_w * 10 + plan.stride_w
                                                              : 0;
  }

  // One row, or two where they share most of their input: how many it was.
  std::int64_t some_rows(std::int64_t image, std::int64_t y, std::int64_t left) const {
    const bool pairs = plan.kernel_h == 3 && plan.stride_h == 1 && plan.dilation_h == 1;
    if (left >= 2 && pairs && kind() == 31) {
      rows<3, 1, 2>(strip_at(image, y, 4));
      return 2;
    }
    const Strip strip = strip_at(image, y, plan.kernel_h);
    switch (kind()) {
      case 31: rows<3, 1, 1>(strip); break;
      case 32: rows<3, 2, 1>(strip); break;
      case 51: rows<5, 1, 1>(strip); break;
      case 52: rows<5, 2, 1>(strip); break;
      case 71: rows<7, 1, 1>(strip); break;
      case 72: rows<7, 2, 1>(strip); break;
      default: any_kernel(strip); break;
    }
    return 1;
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
                    activation_of(plan.epilogue),
                    splat(plan.low < plan.high ? plan.low : -__builtin_inff()),
                    splat(plan.low < plan.high ? plan.high : __builtin_inff()),
                    is_silu(plan.epilogue) && !(plan.low < plan.high)};
  const std::int64_t first = plan.first_panel * kPanel;
  const std::int64_t last = least(plan.groups, plan.last_panel * kPanel);
  const std::int64_t rows = plan.last_row - plan.first_row;
  for (std::int64_t image = 0; image < plan.batch; ++image) {
    for (std::int64_t y = 0, done; y < rows; y += done) {
      done = sweep.some_rows(image, y, rows - y);
      if (!plan.epilogue.present || sweep.activation) continue;
      for (std::int64_t pixel = y * plan.out_width; pixel < (y + done) * plan.out_width; ++pixel) {
        float* to = sweep.dst + image * plan.dst.batch + pixel / plan.out_width * plan.dst.row +
                    pixel % plan.out_width * plan.dst.pixel;
        for (std::int64_t c = first; c < last; c += kMaxBlock) {
          finish(plan.epilogue, call, to + c, image * rows * plan.out_width + pixel, c,
                 least<std::int64_t>(kMaxBlock, last - c));
        }
      }
    }
  }
}

}  // namespace nimble::NIMBLE_ISA
