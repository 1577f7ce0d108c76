// Winograd's convolution: tiles of the input are transformed, multiplied element by element (which,
// over channels, is a matrix product for each of the (side + 2)^2 elements), and transformed back.
// 4 x 4 pixels take 36 multiplications a channel instead of 144, 2 x 2 take 16 instead of 36.
#include "../winograd.h"

#include "program.h"
#include "tile.h"
#include "zeros.h"

namespace nimble::NIMBLE_ISA {
namespace {

template <int Side>
struct Winograd;

template <>
struct Winograd<2> {
  static constexpr double kWeights[4][3] = {{1, 0, 0}, {.5, .5, .5}, {.5, -.5, .5}, {0, 0, 1}};

  NIMBLE_INLINE void input(const Floats (&d)[4], Floats (&o)[4]) {
    o[0] = d[0] - d[2];
    o[1] = d[1] + d[2];
    o[2] = d[2] - d[1];
    o[3] = d[1] - d[3];
  }
  NIMBLE_INLINE void output(const Floats (&m)[4], Floats (&y)[2]) {
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] - m[3];
  }
};

// At the points 0, ±√½, ±√2 and infinity: the usual 0, ±1, ±2 have more than twice the error, and
// three to four times the largest.
template <>
struct Winograd<4> {
  static constexpr double kRoot = 1.4142135623730951, kHalf = kRoot / 2;
  static constexpr double kWeights[6][3] = {
      {1, 0, 0},
      {-2 / 3., -2 / 3. * kHalf, -1 / 3.},
      {-2 / 3., 2 / 3. * kHalf, -1 / 3.},
      {1 / 6., 1 / 6. * kRoot, 1 / 3.},
      {1 / 6., -1 / 6. * kRoot, 1 / 3.},
      {0, 0, 1}};

  NIMBLE_INLINE void input(const Floats (&d)[6], Floats (&o)[6]) {
    constexpr float kA = kHalf, kB = kRoot;
    const Floats near = fma(d[2], -2.0f, d[4]), near_odd = fma(d[1], -2.0f, d[3]);
    const Floats far = fma(d[2], -0.5f, d[4]), far_odd = fma(d[1], -0.5f, d[3]);
    o[0] = fma(d[2], -2.5f, d[0] + d[4]);
    o[1] = fma(near_odd, kA, near);
    o[2] = fma(near_odd, -kA, near);
    o[3] = fma(far_odd, kB, far);
    o[4] = fma(far_odd, -kB, far);
    o[5] = fma(d[3], -2.5f, d[1] + d[5]);
  }
  NIMBLE_INLINE void output(const Floats (&m)[6], Floats (&y)[4]) {
    constexpr float kA = kHalf, kB = kRoot;
    const Floats a = m[1] + m[2], b = m[1] - m[2], c = m[3] + m[4], d = m[3] - m[4];
    y[0] = m[0] + a + c;
    y[1] = fma(b, kA, kB * d);
    y[2] = fma(a, 0.5f, 2.0f * c);
    y[3] = fma(b, kA / 2, fma(d, kB * 2, m[5]));
  }
};

template <int Side>
struct Sweep {
  static constexpr int kIn = Side + 2, kElements = kIn * kIn;

  const WinogradPlan& given;
  const ConvolutionPlan& plan;
  const NativeCall& call;
  float* dst;
  const float* src;
  const float* weights;
  const float* bias;
  const float* added;
  const std::int64_t down, across;  // tiles of an image
  float* const values;              // [element][tile of the block][channel]
  float* const sums;                // [element][panel of those at once][tile of the block][16]
  const std::int64_t values_step, sums_step;

  Sweep(const WinogradPlan& given, const NativeCall& call)
      : given(given),
        plan(given.convolution),
        call(call),
        dst(call.operand<float>(0)),
        src(call.operand<const float>(2)),
        weights(call.operand<const float>(3)),
        bias(plan.bias ? call.operand<const float>(4) : nullptr),
        added(plan.add ? call.operand<const float>(plan.bias ? 5 : 4) : nullptr),
        down((plan.last_row - plan.first_row + Side - 1) / Side),
        across((plan.out_width + Side - 1) / Side),
        values(call.operand<float>(1)),
        sums(values + kElements * (given.block * plan.in + winograd_gap)),
        values_step(given.block * plan.in + winograd_gap),
        sums_step(winograd_panels * given.block * kPanel + winograd_gap) {}

  void transform_input(const float* image, std::int64_t number, std::int64_t place) const {
    const std::int64_t top = number / across * Side + plan.first_row - plan.top;
    const std::int64_t left = number % across * Side - plan.left;
    const float* from[kElements];
    for (std::int64_t i = 0; i < kIn; ++i) {
      for (std::int64_t j = 0; j < kIn; ++j) {
        const std::int64_t y = top + i, x = left + j;
        const bool there = y >= 0 && y < plan.height && x >= 0 && x < plan.width;
        from[i * kIn + j] = there ? image + y * plan.src.row + x * plan.src.pixel : kZeros;
      }
    }
    float* to = values + place * plan.in;
    std::int64_t c = 0;
    for (; c + kLanes <= plan.in; c += kLanes) transform_channels<true>(from, to, c, kLanes);
    if (c < plan.in) transform_channels<false>(from, to, c, plan.in - c);
  }

  template <bool Whole>
  [[gnu::always_inline]] inline void transform_channels(const float* const (&from)[kElements],
                                                        float* to, std::int64_t c,
                                                        std::int64_t count) const {
    Floats half[kIn][kIn];
#pragma GCC unroll 6
    for (int j = 0; j < kIn; ++j) {
      Floats column[kIn], made[kIn];
#pragma GCC unroll 6
      for (int i = 0; i < kIn; ++i) {
        const float* at = from[i * kIn + j] + c;
        column[i] = Whole ? load(at) : load(at, count);
      }
      Winograd<Side>::input(column, made);
#pragma GCC unroll 6
      for (int i = 0; i < kIn; ++i) half[i][j] = made[i];
    }
#pragma GCC unroll 6
    for (int i = 0; i < kIn; ++i) {
      Floats made[kIn];
      Winograd<Side>::input(half[i], made);
#pragma GCC unroll 6
      for (int j = 0; j < kIn; ++j) {
        float* at = to + (i * kIn + j) * values_step + c;
        Whole ? store(at, made[j]) : store(at, made[j], count);
      }
    }
  }

  template <int Rows, int Panels>
  [[gnu::noinline]] void multiply(const float* x, const float* w, float* to, std::int64_t every,
                                  std::int64_t ahead) const {
    constexpr int kParts = Panels > 1 || Rows > 3 ? 1 : Rows <= 2 ? 3 : 2;
    Tile<Rows, Panels, kParts> tile;
    tile.clear();
    tile.add_fetching(x, plan.in, w, kElements * plan.in * kPanel, plan.in, every, ahead);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 2
      for (int c = 0; c < Panels * kPerPanel; ++c) {
        store(to + c / kPerPanel * given.block * kPanel + r * kPanel + c % kPerPanel * kLanes,
              tile.total(r, c));
      }
    }
  }

  // The next element's weights are on their way meanwhile, one line at a time: every group of tiles
  // fetches others.
  template <int Panels>
  void multiply_all(std::int64_t panel, std::int64_t tiles) const {
    const float* w = weights + panel * kElements * plan.in * kPanel;
    const std::int64_t together = rows_together(Panels > 1 ? kWideRows : kTileRows, plan.in);
    const std::int64_t groups = (tiles + together - 1) / together;
    for (int e = 0; e < kElements; ++e, w += plan.in * kPanel) {
      const float* x = values + e * values_step;
      float* to = sums + e * sums_step;
      std::int64_t ahead = plan.in * kPanel;
      in_groups(tiles, together, [&](std::int64_t t, std::int64_t rows) {
        with_rows<Panels == 1 ? kTileRows : kWideRows>(rows, [&]<int kRows>() {
          multiply<kRows, Panels>(x + t * plan.in, w, to + t * kPanel, groups, ahead);
        });
        ahead += kPanel;
      });
    }
  }

  // Returns how many panels those were.
  std::int64_t multiply_panels(std::int64_t panel, std::int64_t tiles) const {
    static_assert(kWide <= winograd_panels);
    if (kWide > 1 && panel + kWide <= plan.last_panel && tiles >= kFewestWideRows) {
      multiply_all<kWide>(panel, tiles);
      return kWide;
    }
    multiply_all<1>(panel, tiles);
    return 1;
  }

  [[gnu::always_inline]] inline void put(float* to, const float* plus, Floats x, std::int64_t count) const {
    if (plus) x += count >= kLanes ? load(plus) : load(plus, count);
    if (plan.low < plan.high) x = between(x, plan.low, plan.high);
    if (count >= kLanes) {
      store(to, x);
    } else {
      store(to, x, count);
    }
  }

  // A vector of channels of one tile, of which the first `count` are there.
  void transform_output(std::int64_t image, std::int64_t number, const float* from,
                        std::int64_t channel, std::int64_t count) const {
    Floats half[Side][kIn];
#pragma GCC unroll 6
    for (int j = 0; j < kIn; ++j) {
      Floats column[kIn], made[Side];
#pragma GCC unroll 6
      for (int i = 0; i < kIn; ++i) column[i] = load(from + (i * kIn + j) * sums_step);
      Winograd<Side>::output(column, made);
#pragma GCC unroll 4
      for (int i = 0; i < Side; ++i) half[i][j] = made[i];
    }
    Floats start = {};
    if (bias) start = count >= kLanes ? load(bias + channel) : load(bias + channel, count);
    const std::int64_t top = number / across * Side, left = number % across * Side;
    const std::int64_t rows = plan.last_row - plan.first_row - top, columns = plan.out_width - left;
    float* to = dst + image * plan.dst.batch + top * plan.dst.row + left * plan.dst.pixel + channel;
    const float* plus =
        added ? added + image * plan.added.batch + top * plan.added.row + left * plan.added.pixel +
                    channel
              : nullptr;
#pragma GCC unroll 4
    for (int i = 0; i < Side; ++i) {
      if (i >= rows) break;
      Floats made[Side];
      Winograd<Side>::output(half[i], made);
#pragma GCC unroll 4
      for (int j = 0; j < Side; ++j) {
        if (j >= columns) break;
        put(to + i * plan.dst.row + j * plan.dst.pixel,
            plus ? plus + i * plan.added.row + j * plan.added.pixel : nullptr, made[j] + start,
            count);
      }
    }
  }

  void transform_panel(std::int64_t image, std::int64_t begin, std::int64_t tiles, const float* made,
                       std::int64_t channel) const {
    const std::int64_t left = plan.out - channel;
    for (std::int64_t t = 0; t < tiles; ++t) {
      for (std::int64_t c = 0; c < least<std::int64_t>(kPanel, left); c += kLanes) {
        transform_output(image, begin + t, made + t * kPanel + c, channel + c, left - c);
      }
    }
  }

  void finish_tile(std::int64_t image, std::int64_t number) const {
    const std::int64_t top = number / across * Side, left = number % across * Side;
    const std::int64_t rows = plan.last_row - plan.first_row;
    const std::int64_t first = plan.first_panel * kPanel;
    const std::int64_t last = least(plan.out, plan.last_panel * kPanel);
    for (std::int64_t y = top; y < least(rows, top + Side); ++y) {
      for (std::int64_t x = left; x < least(plan.out_width, left + Side); ++x) {
        float* row = dst + image * plan.dst.batch + y * plan.dst.row + x * plan.dst.pixel;
        for (std::int64_t c = first; c < last; c += kMaxBlock) {
          finish(plan.epilogue, call, row + c, (image * rows + y) * plan.out_width + x, c,
                 least<std::int64_t>(kMaxBlock, last - c));
        }
      }
    }
  }

  void run() const {
    for (std::int64_t image = 0; image < plan.batch; ++image) {
      for (std::int64_t begin = 0; begin < down * across; begin += given.block) {
        const std::int64_t tiles = least(given.block, down * across - begin);
        for (std::int64_t t = 0; t < tiles; ++t) {
          transform_input(src + image * plan.src.batch, begin + t, t);
        }
        for (std::int64_t panel = plan.first_panel; panel < plan.last_panel;) {
          const std::int64_t until = panel + multiply_panels(panel, tiles);
          for (const float* made = sums; panel < until; ++panel, made += given.block * kPanel) {
            transform_panel(image, begin, tiles, made, panel * kPanel);
          }
        }
        if (plan.epilogue.present) {
          for (std::int64_t t = 0; t < tiles; ++t) finish_tile(image, begin + t);
        }
      }
    }
  }
};

// [panel][tap][in][16] to [panel][element][in][16].
template <int Side>
void pack(const PackWinogradPlan& plan, const float* from, float* to) {
  constexpr int kIn = Side + 2;
  const auto& g = Winograd<Side>::kWeights;
  const std::int64_t step = plan.in * kPanel;
  for (std::int64_t panel = 0; panel < plan.panels; ++panel) {
    for (std::int64_t n = 0; n < step; ++n) {
      const float* w = from + panel * 9 * step + n;
      double half[kIn][3];
      for (int i = 0; i < kIn; ++i) {
        for (int l = 0; l < 3; ++l) {
          half[i][l] = g[i][0] * w[l * step] + g[i][1] * w[(3 + l) * step] + g[i][2] * w[(6 + l) * step];
        }
      }
      float* u = to + panel * kIn * kIn * step + n;
      for (int i = 0; i < kIn; ++i) {
        for (int j = 0; j < kIn; ++j) {
          u[(i * kIn + j) * step] = static_cast<float>(
              half[i][0] * g[j][0] + half[i][1] * g[j][1] + half[i][2] * g[j][2]);
        }
      }
    }
  }
}

}  // namespace

void winograd(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const WinogradPlan*>(call.plan);
  if (plan.side == 2) {
    Sweep<2>(plan, call).run();
  } else {
    Sweep<4>(plan, call).run();
  }
}

void pack_winograd(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const PackWinogradPlan*>(call.plan);
  const auto* from = call.operand<const float>(1);
  auto* to = call.operand<float>(0);
  if (plan.side == 2) {
    pack<2>(plan, from, to);
  } else {
    pack<4>(plan, from, to);
  }
}

}  // namespace nimble::NIMBLE_ISA
