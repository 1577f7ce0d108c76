#include "../weight_gradient.h"

#include "../../core/kernels.h"
#include "outer.h"

namespace nimble::NIMBLE_ISA {
namespace {

constexpr std::int64_t kFar = 512;          // columns that are copied together
constexpr std::int64_t kBlock = 256 << 10;  // bytes of pixels that stay in the cache

// Pixels of two images that belong together: three nested loops.
struct Pixels {
  std::int64_t n, h, w;
  Plan::Steps a, b;

  // Loops without a gap between them become one.
  void join() {
    if (a.h == w * a.w && b.h == w * b.w) {
      w *= h;
      h = 1;
    }
    if (h == 1) {
      h = n;
      a.h = a.n;
      b.h = b.n;
      n = 1;
    }
    if (n == 1 && a.h == w * a.w && b.h == w * b.w) {
      w *= h;
      h = 1;
    }
  }
};

// Goes through pixels in order.
class Walker {
 public:
  explicit Walker(const Pixels& pixels) : pixels_(pixels) {}

  // The next pixels, at most `count`, of one row: where they begin, and how many.
  std::int64_t take(std::int64_t count, std::int64_t& a, std::int64_t& b) {
    count = least(count, pixels_.w - w_);
    a = n_ * pixels_.a.n + h_ * pixels_.a.h + w_ * pixels_.a.w;
    b = n_ * pixels_.b.n + h_ * pixels_.b.h + w_ * pixels_.b.w;
    w_ += count;
    if (w_ == pixels_.w) {
      w_ = 0;
      if (++h_ == pixels_.h) {
        h_ = 0;
        ++n_;
      }
    }
    return count;
  }

 private:
  Pixels pixels_;
  std::int64_t n_ = 0, h_ = 0, w_ = 0;
};

// Up to kPixels pixels of each image: where they lie.
struct Block {
  std::int64_t count = 0;
  const float* a[kPixels];
  const float* b[kPixels];
};

// result[i][j] = sum over pixels of a[i] b[j], added to what is there unless this is the first.
[[gnu::noinline]] void tile(const float* a, const float* b, std::int64_t pixels, float* result,
                            std::int64_t a_step, std::int64_t b_step, std::int64_t rows,
                            std::int64_t columns, bool is_first) {
  Floats total[kRows][kPerPanel];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int c = 0; c < kPerPanel; ++c) total[i][c] = splat(0.0f);
  }
  for (std::int64_t p = 0; p < pixels; ++p, a += kWide, b += kColumns) add_outer(total, a, b);
  if (b_step == 1 && columns == kColumns && rows == kRows) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i, result += a_step) {
#pragma GCC unroll 2
      for (int c = 0; c < kPerPanel; ++c) {
        float* to = result + c * kLanes;
        store(to, is_first ? total[i][c] : load(to) + total[i][c]);
      }
    }
    return;
  }
  float made[kRows][kColumns];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int c = 0; c < kPerPanel; ++c) store(made[i] + c * kLanes, total[i][c]);
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      float& out = result[i * a_step + j * b_step];
      out = is_first ? made[i][j] : out + made[i][j];
    }
  }
}

// The outer product of `rows` elements of a and `columns` of b, summed over a block of pixels. What
// is copied of b is used for all rows, what is copied of a stays in the innermost cache.
void product(const Block& block, std::int64_t rows, std::int64_t columns, float* result,
             std::int64_t a_step, std::int64_t b_step, bool is_first) {
  alignas(64) float a[kPixels * kWide], b[kPixels * kFar];
  for (std::int64_t far = 0; far < columns; far += kFar) {
    const std::int64_t end = least(far + kFar, columns);
    for (std::int64_t j = far; j < end; j += kColumns) {
      gather<kColumns>(b + (j - far) * kPixels, block.b, block.count, j,
                       least<std::int64_t>(kColumns, end - j));
    }
    for (std::int64_t i = 0; i < rows; i += kWide) {
      const std::int64_t wide = least<std::int64_t>(kWide, rows - i);
      gather<kWide>(a, block.a, block.count, i, wide);
      for (std::int64_t j = far; j < end; j += kColumns) {
        const std::int64_t width = least<std::int64_t>(kColumns, end - j);
        for (std::int64_t k = 0; k < wide; k += kRows) {
          tile(a + k, b + (j - far) * kPixels, block.count,
               result + (i + k) * a_step + j * b_step, a_step, b_step,
               least<std::int64_t>(kRows, wide - k), width, is_first);
        }
      }
    }
  }
}

// Calls `add(pixels, gradient, x, weights)` for every tap, with the pixels of rows [low, high) of
// images [first, last) at which it lies inside; there may be none.
template <class Add>
void each_tap(const NativeCall& call, const Plan& plan, std::int64_t first, std::int64_t last,
              std::int64_t low, std::int64_t high, Add add) {
  float* weights = call.operand<float>(0);
  const float* gradient = call.operand<const float>(1) + first * plan.gradient.n;
  const float* x = call.operand<const float>(2) + first * plan.x.n;
  for (std::int64_t kh = 0; kh < plan.h.kernel; ++kh) {
    const Range down = inside(plan.h, kh, low, high);
    const std::int64_t in_h = down.first * plan.h.stride + kh * plan.h.dilation - plan.h.padding;
    for (std::int64_t kw = 0; kw < plan.w.kernel; ++kw) {
      const Range across = inside(plan.w, kw, 0, plan.w.out);
      const std::int64_t in_w =
          across.first * plan.w.stride + kw * plan.w.dilation - plan.w.padding;
      Pixels pixels{last - first, down.last - down.first, across.last - across.first, plan.gradient,
                    {plan.x.n, plan.x.h * plan.h.stride, plan.x.w * plan.w.stride}};
      if (pixels.h <= 0 || pixels.w <= 0) pixels.n = 0;
      add(pixels, gradient + down.first * plan.gradient.h + across.first * plan.gradient.w,
          x + in_h * plan.x.h + in_w * plan.x.w, weights + kh * plan.of_h + kw * plan.of_w);
    }
  }
}

// Few input channels: rows of a tile are taken from several taps, which lie side by side in a row of
// the input. So a block of the gradient is copied once for all of them.
constexpr std::int64_t kSums = 16384;

bool is_patchy(const Plan& plan) {
  const std::int64_t run = plan.w.kernel * plan.in;
  return plan.in < kColumns && plan.in < plan.out && run <= kWide && plan.w.dilation == 1 &&
         plan.x.w == plan.in && plan.n * plan.h.out * plan.w.out > 0 &&
         (plan.h.kernel * run + kRows) * (plan.out + kColumns - 1) / kColumns * kColumns <= kSums;
}

// The part of a row of the input that all taps of a row see, zeros where it lies outside.
NIMBLE_INLINE void copy_run(const Plan& plan, const float* image, std::int64_t h, std::int64_t w,
                            float* to) {
  const std::int64_t run = plan.w.kernel * plan.in;
  const bool there = h >= 0 && h < plan.h.in;
  const std::int64_t first = there ? most<std::int64_t>(0, -w) * plan.in : run;
  const std::int64_t last = least(run, (plan.w.in - w) * plan.in);
  const float* from = image + h * plan.x.h + w * plan.in;
  std::int64_t i = 0;
  for (; i < least(first, run); ++i) to[i] = 0.0f;
  for (; i < last; ++i) to[i] = from[i];
  for (; i < run; ++i) to[i] = 0.0f;
}

void weight_gradient_by_patches(const NativeCall& call, const Plan& plan) {
  alignas(64) float a[kPixels * kWide], b[kPixels * kColumns], sums[kSums];
  const float* gradients[kPixels];
  const std::int64_t run = plan.w.kernel * plan.in, at_once = kWide / run;
  const std::int64_t columns = (plan.out + kColumns - 1) / kColumns * kColumns;
  const std::int64_t total = plan.n * plan.h.out * plan.w.out;
  const float* gradient = call.operand<const float>(1);
  const float* x = call.operand<const float>(2);
  for (std::int64_t start = 0; start < total; start += kPixels) {
    const std::int64_t count = least(kPixels, total - start);
    for (std::int64_t kh = 0; kh < plan.h.kernel; kh += at_once) {
      const std::int64_t taps = least(at_once, plan.h.kernel - kh), rows = taps * run;
      const std::int64_t seen = (rows + kRows - 1) / kRows * kRows;
      std::int64_t w = start % plan.w.out, h = start / plan.w.out % plan.h.out;
      std::int64_t n = start / plan.w.out / plan.h.out;
      for (std::int64_t p = 0; p < count; ++p) {
        gradients[p] = gradient + n * plan.gradient.n + h * plan.gradient.h + w * plan.gradient.w;
        for (std::int64_t t = 0; t < taps; ++t) {
          copy_run(plan, x + n * plan.x.n,
                   h * plan.h.stride + (kh + t) * plan.h.dilation - plan.h.padding,
                   w * plan.w.stride - plan.w.padding, a + p * kWide + t * run);
        }
        for (std::int64_t i = rows; i < seen; ++i) a[p * kWide + i] = 0.0f;
        if (++w < plan.w.out) continue;
        w = 0;
        if (++h < plan.h.out) continue;
        h = 0;
        ++n;
      }
      for (std::int64_t j = 0; j < columns; j += kColumns) {
        gather<kColumns>(b, gradients, count, j, least<std::int64_t>(kColumns, plan.out - j));
        for (std::int64_t i = 0; i < seen; i += kRows) {
          tile(a + i, b, count, sums + (kh * run + i) * columns + j, columns, 1,
               least<std::int64_t>(kRows, rows - i), kColumns, start == 0);
        }
      }
    }
  }
  float* weights = call.operand<float>(0);
  const float* sum = sums;
  for (std::int64_t kh = 0; kh < plan.h.kernel; ++kh) {
    for (std::int64_t kw = 0; kw < plan.w.kernel; ++kw) {
      for (std::int64_t i = 0; i < plan.in; ++i, sum += columns) {
        float* to = weights + kh * plan.of_h + kw * plan.of_w + i * plan.of_in;
        for (std::int64_t o = 0; o < plan.out; ++o) to[o * plan.of_out] = sum[o];
      }
    }
  }
}

void clear(const Plan& plan, float* tap) {
  for (std::int64_t o = 0; o < plan.out; ++o) {
    for (std::int64_t i = 0; i < plan.in; ++i) tap[o * plan.of_out + i * plan.of_in] = 0.0f;
  }
}

// kVectors vectors of channels, each with its own.
template <int kVectors, bool kPartial>
[[gnu::noinline]] void apart(const Pixels& pixels, const float* a, const float* b, float* result,
                             std::int64_t step, std::int64_t left) {
  Floats total[kVectors];
#pragma GCC unroll 4
  for (Floats& t : total) t = splat(0.0f);
  const auto get = [&](const float* p) { return kPartial ? load(p, left) : load(p); };
  for (std::int64_t n = 0; n < pixels.n; ++n) {
    for (std::int64_t h = 0; h < pixels.h; ++h) {
      const float* at = a + n * pixels.a.n + h * pixels.a.h;
      const float* bt = b + n * pixels.b.n + h * pixels.b.h;
      for (std::int64_t w = 0; w < pixels.w; ++w, at += pixels.a.w, bt += pixels.b.w) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          total[v] = fma(get(at + kLanes * v), get(bt + kLanes * v), total[v]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const std::int64_t count = kPartial ? left : kLanes;
    for (std::int64_t j = 0; j < count; ++j) result[(kLanes * v + j) * step] += total[v][j];
  }
}

}  // namespace

void weight_gradient(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const Plan*>(call.plan);
  if (is_patchy(plan)) return weight_gradient_by_patches(call, plan);
  if (can_go_tap_by_tap(plan)) return weight_gradient_tap_by_tap(call, plan);
  // Vectors along the side that fills them.
  const bool along_in = plan.in >= kColumns || plan.in >= plan.out;
  each_tap(call, plan, 0, plan.n, 0, plan.h.out,
           [&](Pixels pixels, const float* gradient, const float* x, float* tap) {
             if (pixels.n == 0) return clear(plan, tap);
             pixels.join();
             Walker walker(pixels);
             std::int64_t total = pixels.n * pixels.h * pixels.w;
             for (bool is_first = true; total > 0; is_first = false) {
               Block block;
               while (block.count < kPixels && total > 0) {
                 std::int64_t a, b;
                 const std::int64_t taken = walker.take(kPixels - block.count, a, b);
                 for (std::int64_t p = 0; p < taken; ++p, ++block.count) {
                   const float* one = gradient + a + p * pixels.a.w;
                   const float* other = x + b + p * pixels.b.w;
                   block.a[block.count] = along_in ? one : other;
                   block.b[block.count] = along_in ? other : one;
                 }
                 total -= taken;
               }
               if (along_in) {
                 product(block, plan.out, plan.in, tap, plan.of_out, plan.of_in, is_first);
               } else {
                 product(block, plan.in, plan.out, tap, plan.of_in, plan.of_out, is_first);
               }
             }
           });
}

void depthwise_gradient(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const Plan*>(call.plan);
  each_tap(call, plan, 0, 1, 0, 1,
           [&](const Pixels&, const float*, const float*, float* tap) { clear(plan, tap); });
  const std::int64_t row = plan.w.out * plan.out * 8;
  const std::int64_t images = most<std::int64_t>(1, kBlock / (row * plan.h.out));
  const std::int64_t rows = images > 1 ? plan.h.out : most<std::int64_t>(1, kBlock / row);
  for (std::int64_t n = 0; n < plan.n; n += images) {
    for (std::int64_t h = 0; h < plan.h.out; h += rows) {
      each_tap(call, plan, n, least(n + images, plan.n), h, least(h + rows, plan.h.out),
               [&](Pixels pixels, const float* gradient, const float* x, float* tap) {
                 if (pixels.n == 0) return;
                 pixels.join();
                 std::int64_t c = 0;
                 for (; c + 4 * kLanes <= plan.out; c += 4 * kLanes) {
                   apart<4, false>(pixels, gradient + c, x + c, tap + c * plan.of_out, plan.of_out, 0);
                 }
                 for (; c + kLanes <= plan.out; c += kLanes) {
                   apart<1, false>(pixels, gradient + c, x + c, tap + c * plan.of_out, plan.of_out, 0);
                 }
                 if (c < plan.out) {
                   apart<1, true>(pixels, gradient + c, x + c, tap + c * plan.of_out, plan.of_out,
                                  plan.out - c);
                 }
               });
    }
  }
}

}  // namespace nimble::NIMBLE_ISA
