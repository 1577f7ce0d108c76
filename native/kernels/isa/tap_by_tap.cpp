// The gradient of weights whose taps lie side by side. Pixels are copied once for all taps, and the
// sums of all taps of a few weights are written together, in the order in which they lie.
#include "outer.h"
#include "transpose.h"

namespace nimble::NIMBLE_ISA {
namespace {

constexpr std::int64_t kMostTaps = 9;
constexpr std::int64_t kNear = 384;  // pixels of the input that are copied together

// A pair of pixels that a tap multiplies: where they were copied to.
struct Pair {
  std::uint16_t a, b;
};

// How images are cut: some whole ones together, or some rows of one.
struct Cut {
  std::int64_t images, rows;
};

std::int64_t rows_seen(const Plan::Dimension& h, std::int64_t rows) {
  return least(h.in, rows + (h.kernel - 1) * h.dilation);
}

Cut cut(const Plan& plan) {
  const std::int64_t whole = plan.h.out * plan.w.out;
  if (whole <= kPixels) {
    const std::int64_t seen = rows_seen(plan.h, plan.h.out) * plan.w.in;
    return {least(kPixels / whole, kNear / seen), plan.h.out};
  }
  std::int64_t rows = kPixels / plan.w.out;
  while (rows > 0 && rows_seen(plan.h, rows) * plan.w.in > kNear) --rows;
  return {1, rows};
}

// Some rows of an image, and those of the input that they see.
struct Part {
  std::int64_t low, high, from, to;
  const Pair* pairs[kMostTaps];
  std::int64_t count[kMostTaps];  // of one image

  Part(const Plan& plan, std::int64_t low, std::int64_t high)
      : low(low),
        high(high),
        from(least(plan.h.in, most<std::int64_t>(0, low - plan.h.padding))),
        to(most(from, least(plan.h.in, high + (plan.h.kernel - 1) * plan.h.dilation -
                                           plan.h.padding))) {}

  // Lists the pairs of every tap, image after image.
  void list(const Plan& plan, std::int64_t images, Pair* next) {
    const std::int64_t of_a = (high - low) * plan.w.out, of_b = (to - from) * plan.w.in;
    for (std::int64_t kh = 0, tap = 0; kh < plan.h.kernel; ++kh) {
      const Range down = inside(plan.h, kh, low, high);
      for (std::int64_t kw = 0; kw < plan.w.kernel; ++kw, ++tap) {
        const Range across = inside(plan.w, kw, 0, plan.w.out);
        const std::int64_t in_h = kh * plan.h.dilation - plan.h.padding - from;
        const std::int64_t in_w = kw * plan.w.dilation - plan.w.padding;
        pairs[tap] = next;
        for (std::int64_t n = 0; n < images; ++n) {
          for (std::int64_t h = down.first; h < down.last; ++h) {
            for (std::int64_t w = across.first; w < across.last; ++w, ++next) {
              const std::int64_t a = n * of_a + (h - low) * plan.w.out + w;
              const std::int64_t b = n * of_b + (h + in_h) * plan.w.in + w + in_w;
              next->a = static_cast<std::uint16_t>(a * kWide);
              next->b = static_cast<std::uint16_t>(b * kColumns);
            }
          }
        }
        count[tap] = (next - pairs[tap]) / images;
      }
    }
  }
};

// The pixels of some rows of some images.
std::int64_t find(const float** pixels, const float* image, const Plan::Steps& step,
                  std::int64_t images, std::int64_t low, std::int64_t high, std::int64_t width) {
  const float** next = pixels;
  for (std::int64_t n = 0; n < images; ++n) {
    for (std::int64_t h = low; h < high; ++h) {
      const float* at = image + n * step.n + h * step.h;
      for (std::int64_t w = 0; w < width; ++w, at += step.w) *next++ = at;
    }
  }
  return next - pixels;
}

// sums[i][j] = the sum over pairs of a[i] b[j], added to what is there unless this is the first.
[[gnu::noinline]] void tile(const float* a, const float* b, const Pair* pairs, std::int64_t count,
                            float* sums, bool is_first) {
  Floats total[kRows][kPerPanel];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int c = 0; c < kPerPanel; ++c) {
      total[i][c] = is_first ? splat(0.0f) : load(sums + i * kColumns + c * kLanes);
    }
  }
  for (const Pair* end = pairs + count; pairs != end; ++pairs) {
    const float* x = a + pairs->a;
    const float* y = b + pairs->b;
    add_outer(total, x, y);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int c = 0; c < kPerPanel; ++c) store(sums + i * kColumns + c * kLanes, total[i][c]);
  }
}

}  // namespace

bool can_go_tap_by_tap(const Plan& plan) {
  const std::int64_t taps = plan.h.kernel * plan.w.kernel;
  return taps > 1 && taps <= kMostTaps && plan.in >= kColumns && plan.of_w == 1 &&
         plan.of_h == plan.w.kernel && plan.h.stride == 1 && plan.w.stride == 1 &&
         plan.h.out * plan.w.out > 0 && plan.w.out <= kPixels && plan.w.in * plan.h.in > 0 &&
         cut(plan).images > 0 && cut(plan).rows > 0;
}

void weight_gradient_tap_by_tap(const NativeCall& call, const Plan& plan) {
  alignas(64) float a[kPixels * kWide], b[kNear * kColumns], sums[kMostTaps * kWide * kColumns];
  const float* pixels[kNear];
  Pair pairs[kMostTaps * kPixels];
  const Cut block = cut(plan);
  const std::int64_t taps = plan.h.kernel * plan.w.kernel;
  const float* gradient = call.operand<const float>(1);
  const float* x = call.operand<const float>(2);
  const std::int64_t parts = (plan.h.out + block.rows - 1) / block.rows;
  for (std::int64_t i = 0; i < plan.out; i += kWide) {
    const std::int64_t wide = least<std::int64_t>(kWide, plan.out - i);
    for (std::int64_t j = 0; j < plan.in; j += kColumns) {
      const std::int64_t width = least<std::int64_t>(kColumns, plan.in - j);
      bool is_first = true;
      for (std::int64_t p = 0; p < parts; ++p) {
        Part part(plan, p * block.rows, least((p + 1) * block.rows, plan.h.out));
        part.list(plan, block.images, pairs);
        for (std::int64_t n = 0; n < plan.n; n += block.images, is_first = false) {
          const std::int64_t images = least(block.images, plan.n - n);
          gather<kWide>(a, pixels,
                        find(pixels, gradient + n * plan.gradient.n, plan.gradient, images,
                             part.low, part.high, plan.w.out),
                        i, wide);
          gather<kColumns>(b, pixels,
                           find(pixels, x + n * plan.x.n, plan.x, images, part.from, part.to,
                                plan.w.in),
                           j, width);
          for (std::int64_t tap = 0; tap < taps; ++tap) {
            for (std::int64_t k = 0; k < wide; k += kRows) {
              tile(a + k, b, part.pairs[tap], part.count[tap] * images,
                   sums + (tap * kWide + k) * kColumns, is_first);
            }
          }
        }
      }
      float* weights = call.operand<float>(0) + i * plan.of_out + j * plan.of_in;
      for (std::int64_t k = 0; k < wide; ++k) {
        transpose(weights + k * plan.of_out, sums + k * kColumns, width, taps, plan.of_in,
                  kWide * kColumns);
      }
    }
  }
}

}  // namespace nimble::NIMBLE_ISA
