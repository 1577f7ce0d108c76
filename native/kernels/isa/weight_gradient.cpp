#include "../weight_gradient.h"

#include "../../core/kernels.h"
#include "vec.h"

namespace nimble::NIMBLE_ISA {
namespace {

using Plan = WeightGradientPlan;

constexpr int kRows = 6;                       // of a tile, each one element broadcast
constexpr std::int64_t kBlock = 256 << 10;     // bytes of pixels that stay in the cache

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

// result[i][j] += sum over pixels of a[i] b[j], for kA elements of a and kB vectors of b.
template <int kA, int kB, bool kPartial>
[[gnu::noinline]] void tile(const Pixels& pixels, const float* a, const float* b, float* result,
                            std::int64_t a_step, std::int64_t b_step, std::int64_t left) {
  F8 total[kA][kB];
#pragma GCC unroll 6
  for (int i = 0; i < kA; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kB; ++v) total[i][v] = splat(0.0f);
  }
  for (std::int64_t n = 0; n < pixels.n; ++n) {
    for (std::int64_t h = 0; h < pixels.h; ++h) {
      const float* at = a + n * pixels.a.n + h * pixels.a.h;
      const float* bt = b + n * pixels.b.n + h * pixels.b.h;
      for (std::int64_t w = 0; w < pixels.w; ++w, at += pixels.a.w, bt += pixels.b.w) {
        F8 vector[kB];
#pragma GCC unroll 2
        for (int v = 0; v < kB; ++v) {
          vector[v] = kPartial && v == kB - 1 ? load(bt + 8 * v, left) : load(bt + 8 * v);
        }
#pragma GCC unroll 6
        for (int i = 0; i < kA; ++i) {
          const F8 one = splat(at[i]);
#pragma GCC unroll 2
          for (int v = 0; v < kB; ++v) total[i][v] = fma(one, vector[v], total[i][v]);
        }
      }
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kA; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kB; ++v) {
      float* out = result + i * a_step + 8 * v * b_step;
      const bool whole = !(kPartial && v == kB - 1);
      if (whole && b_step == 1) {
        store(out, load(out) + total[i][v]);
      } else {
        const std::int64_t count = whole ? 8 : left;
        for (std::int64_t j = 0; j < count; ++j) out[j * b_step] += total[i][v][j];
      }
    }
  }
}

template <int kA>
void columns(const Pixels& pixels, const float* a, const float* b, float* result,
             std::int64_t a_step, std::int64_t b_step, std::int64_t count) {
  std::int64_t j = 0;
  for (; j + 16 <= count; j += 16) {
    tile<kA, 2, false>(pixels, a, b + j, result + j * b_step, a_step, b_step, 8);
  }
  const std::int64_t left = count - j;
  b += j;
  result += j * b_step;
  if (left > 8) {
    tile<kA, 2, true>(pixels, a, b, result, a_step, b_step, left - 8);
  } else if (left == 8) {
    tile<kA, 1, false>(pixels, a, b, result, a_step, b_step, 8);
  } else if (left > 0) {
    tile<kA, 1, true>(pixels, a, b, result, a_step, b_step, left);
  }
}

// All of the outer product of `rows` elements of a and `count` of b.
void product(const Pixels& pixels, const float* a, std::int64_t rows, const float* b,
             std::int64_t count, float* result, std::int64_t a_step, std::int64_t b_step) {
  std::int64_t i = 0;
  for (; i + kRows <= rows; i += kRows) {
    columns<kRows>(pixels, a + i, b, result + i * a_step, a_step, b_step, count);
  }
  a += i;
  result += i * a_step;
  switch (rows - i) {
    case 5: return columns<5>(pixels, a, b, result, a_step, b_step, count);
    case 4: return columns<4>(pixels, a, b, result, a_step, b_step, count);
    case 3: return columns<3>(pixels, a, b, result, a_step, b_step, count);
    case 2: return columns<2>(pixels, a, b, result, a_step, b_step, count);
    case 1: return columns<1>(pixels, a, b, result, a_step, b_step, count);
    default: return;
  }
}

// Positions [first, last) of the result, of [low, high), whose input at this tap lies inside.
struct Range {
  std::int64_t first, last;
};
Range inside(const Plan::Dimension& d, std::int64_t tap, std::int64_t low, std::int64_t high) {
  const std::int64_t shift = tap * d.dilation - d.padding;  // input = position * stride + shift
  const std::int64_t first = shift >= 0 ? 0 : (-shift + d.stride - 1) / d.stride;
  const std::int64_t room = d.in - 1 - shift;
  const std::int64_t last = room < 0 ? 0 : room / d.stride + 1;
  return {most(low, first), least(high, last)};
}

void clear(const Plan& plan, float* weights) {
  for (std::int64_t o = 0; o < plan.out; ++o) {
    for (std::int64_t i = 0; i < plan.in; ++i) {
      for (std::int64_t h = 0; h < plan.h.kernel; ++h) {
        float* row = weights + o * plan.of_out + i * plan.of_in + h * plan.of_h;
        for (std::int64_t w = 0; w < plan.w.kernel; ++w) row[w * plan.of_w] = 0.0f;
      }
    }
  }
}

// Calls `add(pixels, gradient, x, weights)` for every tap, block of pixels by block.
template <class Add>
void each_tap(const NativeCall& call, const Plan& plan, std::int64_t channels, Add add) {
  float* weights = call.operand<float>(0);
  const float* gradient = call.operand<const float>(1);
  const float* x = call.operand<const float>(2);
  clear(plan, weights);
  const std::int64_t row = plan.w.out * channels * 4;
  const std::int64_t images = most<std::int64_t>(1, kBlock / (row * plan.h.out));
  const std::int64_t rows = images > 1 ? plan.h.out : most<std::int64_t>(1, kBlock / row);
  for (std::int64_t n = 0; n < plan.n; n += images) {
    for (std::int64_t h = 0; h < plan.h.out; h += rows) {
      for (std::int64_t kh = 0; kh < plan.h.kernel; ++kh) {
        const Range down = inside(plan.h, kh, h, least(h + rows, plan.h.out));
        for (std::int64_t kw = 0; kw < plan.w.kernel; ++kw) {
          const Range across = inside(plan.w, kw, 0, plan.w.out);
          if (down.first >= down.last || across.first >= across.last) continue;
          const std::int64_t in_h = down.first * plan.h.stride + kh * plan.h.dilation - plan.h.padding;
          const std::int64_t in_w =
              across.first * plan.w.stride + kw * plan.w.dilation - plan.w.padding;
          const Pixels pixels{
              least(images, plan.n - n), down.last - down.first, across.last - across.first,
              plan.gradient,
              {plan.x.n, plan.x.h * plan.h.stride, plan.x.w * plan.w.stride}};
          add(pixels,
              gradient + n * plan.gradient.n + down.first * plan.gradient.h +
                  across.first * plan.gradient.w,
              x + n * plan.x.n + in_h * plan.x.h + in_w * plan.x.w,
              weights + kh * plan.of_h + kw * plan.of_w);
        }
      }
    }
  }
}

// kVectors vectors of channels, each with its own.
template <int kVectors, bool kPartial>
[[gnu::noinline]] void apart(const Pixels& pixels, const float* a, const float* b, float* result,
                             std::int64_t step, std::int64_t left) {
  F8 total[kVectors];
#pragma GCC unroll 4
  for (F8& t : total) t = splat(0.0f);
  const auto get = [&](const float* p) { return kPartial ? load(p, left) : load(p); };
  for (std::int64_t n = 0; n < pixels.n; ++n) {
    for (std::int64_t h = 0; h < pixels.h; ++h) {
      const float* at = a + n * pixels.a.n + h * pixels.a.h;
      const float* bt = b + n * pixels.b.n + h * pixels.b.h;
      for (std::int64_t w = 0; w < pixels.w; ++w, at += pixels.a.w, bt += pixels.b.w) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          total[v] = fma(get(at + 8 * v), get(bt + 8 * v), total[v]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const std::int64_t count = kPartial ? left : 8;
    for (std::int64_t j = 0; j < count; ++j) result[(8 * v + j) * step] += total[v][j];
  }
}

}  // namespace

void weight_gradient(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const Plan*>(call.plan);
  // Vectors along the side that fills them.
  const bool along_in = plan.in >= 16 || plan.in >= plan.out;
  each_tap(call, plan, plan.in + plan.out,
           [&](Pixels pixels, const float* gradient, const float* x, float* weights) {
             if (along_in) {
               pixels.join();
               product(pixels, gradient, plan.out, x, plan.in, weights, plan.of_out, plan.of_in);
             } else {
               const Plan::Steps a = pixels.a;
               pixels.a = pixels.b;
               pixels.b = a;
               pixels.join();
               product(pixels, x, plan.in, gradient, plan.out, weights, plan.of_in, plan.of_out);
             }
           });
}

void depthwise_gradient(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const Plan*>(call.plan);
  each_tap(call, plan, 2 * plan.out,
           [&](Pixels pixels, const float* gradient, const float* x, float* weights) {
             pixels.join();
             std::int64_t c = 0;
             for (; c + 32 <= plan.out; c += 32) {
               apart<4, false>(pixels, gradient + c, x + c, weights + c * plan.of_out, plan.of_out, 8);
             }
             for (; c + 8 <= plan.out; c += 8) {
               apart<1, false>(pixels, gradient + c, x + c, weights + c * plan.of_out, plan.of_out, 8);
             }
             if (c < plan.out) {
               apart<1, true>(pixels, gradient + c, x + c, weights + c * plan.of_out, plan.of_out,
                              plan.out - c);
             }
           });
}

}  // namespace nimble::NIMBLE_ISA
