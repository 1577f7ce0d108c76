// Convolution as a matrix product that finds its rows through pointers: for every tap of the kernel
// and every output pixel, where the input pixel lies, or zeros where that is padding.
#include "../convolution.h"

#include "program.h"
#include "zeros.h"

namespace nimble::NIMBLE_ISA {
namespace {

constexpr std::int64_t kPointers = 4096, kChunk = 96;  // groups of kPixels
constexpr std::int64_t kFewLines = 48;                   // of weights; not worth fetching ahead
constexpr std::int64_t kCached = 256 * 1024;             // bytes of input in the second-level cache
constexpr std::int64_t kSmall = 64;                      // pixels of an image

struct Tile {
  const float* const* from;  // [tap][kPixels]
  const float* weights;      // [tap][channel][kPanel]
  F8 start0, start1;         // the bias
};

// Whether all of a tap lies outside of the image.
template <int M>
NIMBLE_INLINE bool padding(const float* const (&x)[M]) {
  if (x[0] != kZeros) [[likely]] return false;
  for (int m = 1; m < M; ++m) {
    if (x[m] != kZeros) return false;
  }
  return true;
}

// M pixels by 16 channels. Few pixels have few sums: those are then made in `Parts` parts, so that
// one multiplication need not wait for the last. (More channels at once would do as well, but then
// weights are not read as they lie in memory, and a core fetches them more slowly.)
template <int M, int Parts>
NIMBLE_INLINE void multiply(const Tile& tile, std::int64_t taps, std::int64_t in, F8 (&sum)[M][2]) {
  F8 acc[Parts][M][2] = {};
  const float* w = tile.weights;
  const auto step = [&](F8 (&into)[M][2], const float* const(&x)[M], std::int64_t c) {
    const F8 w0 = load(w), w1 = load(w + 8);
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
      const F8 s = splat(x[m][c]);
      into[m][0] = fma(s, w0, into[m][0]);
      into[m][1] = fma(s, w1, into[m][1]);
    }
    w += kPanel;
  };
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
    acc[0][m][0] = tile.start0;
    acc[0][m][1] = tile.start1;
  }
  for (std::int64_t t = 0; t < taps; ++t) {
    const float* x[M];
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) x[m] = tile.from[t * kPixels + m];
    if (padding(x)) {
      w += in * kPanel;
      continue;
    }
    std::int64_t c = 0;
    for (; c + Parts <= in; c += Parts) {
#pragma GCC unroll 4
      for (int part = 0; part < Parts; ++part) step(acc[part], x, c + part);
    }
    if constexpr (Parts > 1) {
      for (; c < in; ++c) step(acc[0], x, c);
    }
  }
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      sum[m][v] = acc[0][m][v];
#pragma GCC unroll 4
      for (int part = 1; part < Parts; ++part) sum[m][v] += acc[part][m][v];
    }
  }
}

// Up to 12 pixels by 8 channels, for the last channels of a group.
template <int M>
NIMBLE_INLINE void multiply_half(const Tile& tile, std::int64_t taps, std::int64_t in,
                                 F8 (&acc)[M]) {
  const float* w = tile.weights;
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m) acc[m] = tile.start0;
  for (std::int64_t t = 0; t < taps; ++t) {
    const float* x[M];
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m) x[m] = tile.from[t * kPixels + m];
    if (padding(x)) {
      w += in * kPanel;
      continue;
    }
    for (std::int64_t c = 0; c < in; ++c, w += kPanel) {
      const F8 w0 = load(w);
#pragma GCC unroll 12
      for (int m = 0; m < M; ++m) acc[m] = fma(splat(x[m][c]), w0, acc[m]);
    }
  }
}

struct Place {
  float* to;
  const float* added;
};

struct End {
  F8 low, high;

  // Keeps the compiler from holding these, or what is found in `places`, in registers that the sums
  // and their operands need.
  [[gnu::always_inline]] inline void forget(const Place*& places) {
    asm("" : "+m"(low), "+m"(high), "+r"(places));
  }
};

struct Sweep {
  const ConvolutionPlan& plan;
  const NativeCall& call;
  const float* src;
  float* dst;
  const float* weights;
  const float* bias;
  const float* added;
  const std::int64_t taps, panels;
  const std::int64_t pixels;  // of an image
  // Small images are computed together, the same pixel of all of them in a row: tiles are full, all
  // of a tile finds the same taps in the padding, and weights are read once.
  const bool together;
  const bool pixel_by_pixel;  // an output pixel is made from the input pixel of the same number
  const bool dense;           // rows of the output follow each other without gaps
  const Activation activation;  // of a tile, while it is in the first-level cache
  // Not initialised: that would take longer than a small convolution.
  std::int64_t tap_offset[kMaxTaps];
  const float* from[kPointers];  // of a chunk: [group of pixels][tap][kPixels]
  Place place[kChunk * kPixels];

  Sweep(const ConvolutionPlan& plan, const NativeCall& call)
      : plan(plan),
        call(call),
        src(call.operand<const float>(1)),
        dst(call.operand<float>(0)),
        weights(call.operand<const float>(2)),
        bias(plan.bias ? call.operand<const float>(3) : nullptr),
        added(plan.add ? call.operand<const float>(plan.bias ? 4 : 3) : nullptr),
        taps(plan.kernel_h * plan.kernel_w),
        panels((plan.out + kPanel - 1) / kPanel),
        pixels((plan.last_row - plan.first_row) * plan.out_width),
        together(plan.batch > 1 && pixels <= kSmall),
        pixel_by_pixel(taps == 1 && plan.stride_h == 1 && plan.stride_w == 1 && plan.top == 0 &&
                       plan.left == 0 && plan.out_width == plan.width &&
                       plan.last_row <= plan.height && plan.src.row == plan.width * plan.src.pixel),
        dense(!together && plan.dst.row == plan.out_width * plan.dst.pixel &&
              (!plan.add || plan.added.row == plan.out_width * plan.added.pixel)),
        activation(activation_of(plan.epilogue)) {
    for (std::int64_t i = 0, t = 0; i < plan.kernel_h; ++i) {
      for (std::int64_t j = 0; j < plan.kernel_w; ++j, ++t) {
        tap_offset[t] = i * plan.dilation_h * plan.src.row + j * plan.dilation_w * plan.src.pixel;
      }
    }
  }

  template <bool Adds>
  [[gnu::always_inline]] inline void put(const End& end, const Place& place, std::int64_t channel,
                                         F8 x, std::int64_t count) const {
    float* to = place.to + channel;
    if (count >= 8) {
      if constexpr (Adds) x += load(place.added + channel);
      store(to, between(x, end.low, end.high));
    } else if (count > 0) {
      if constexpr (Adds) x += load(place.added + channel, count);
      store(to, between(x, end.low, end.high), count);
    }
  }

  template <int M, bool Adds>
  [[gnu::always_inline]] inline void tile(const Tile& given, End& end, const Place* places,
                                          std::int64_t channel, std::int64_t count) const {
    if (count > 8) {
      F8 sum[M][2];
      multiply<M, M == 1 ? 4 : M <= 3 ? 2 : 1>(given, taps, plan.in, sum);
      end.forget(places);
#pragma GCC unroll 6
      for (int m = 0; m < M; ++m) {
        put<Adds>(end, places[m], channel, sum[m][0], 8);
        put<Adds>(end, places[m], channel + 8, sum[m][1], count - 8);
      }
    } else {
      F8 acc[M];
      multiply_half<M>(given, taps, plan.in, acc);
      end.forget(places);
#pragma GCC unroll 6
      for (int m = 0; m < M; ++m) {
        put<Adds>(end, places[m], channel, acc[m], count);
      }
    }
  }

  [[gnu::always_inline]] inline void activate(const Place* places, std::int64_t pixels,
                                              std::int64_t channel, std::int64_t count) const {
    if (!activation || pixels == 0) return;
    if (dense) return activation(places->to + channel, plan.dst.pixel, pixels, count);
    for (std::int64_t m = 0; m < pixels; ++m) activation(places[m].to + channel, 0, 1, count);
  }

  // Pointers of every tap for the output pixel (y, x), to every kPixels-th place.
  [[gnu::always_inline]] inline void point_at(const float* image, std::int64_t y, std::int64_t x,
                                              const float** out) const {
    const std::int64_t top = (y + plan.first_row) * plan.stride_h - plan.top;
    const std::int64_t left = x * plan.stride_w - plan.left;
    const float* corner = image + top * plan.src.row + left * plan.src.pixel;
    const bool inside = top >= 0 && left >= 0 &&
                        top + (plan.kernel_h - 1) * plan.dilation_h < plan.height &&
                        left + (plan.kernel_w - 1) * plan.dilation_w < plan.width;
    if (inside) {
      for (std::int64_t t = 0; t < taps; ++t) out[t * kPixels] = corner + tap_offset[t];
      return;
    }
    std::int64_t t = 0;
    for (std::int64_t i = 0; i < plan.kernel_h; ++i) {
      const std::int64_t row = top + i * plan.dilation_h;
      for (std::int64_t j = 0; j < plan.kernel_w; ++j, ++t) {
        const std::int64_t column = left + j * plan.dilation_w;
        const bool there = row >= 0 && row < plan.height && column >= 0 && column < plan.width;
        out[t * kPixels] = there ? corner + tap_offset[t] : kZeros;
      }
    }
  }

  // Pointers for output pixels [pixel, pixel + count) of one image.
  void point(const float* image, std::int64_t pixel, std::int64_t count, const float** out) const {
    if (pixel_by_pixel) {
      const float* first = image + plan.first_row * plan.src.row + pixel * plan.src.pixel;
      for (std::int64_t m = 0; m < kPixels; ++m) out[m] = first + least(m, count - 1) * plan.src.pixel;
      return;
    }
    std::int64_t y = pixel / plan.out_width, x = pixel % plan.out_width;
    for (std::int64_t m = 0; m < kPixels; ++m) {
      point_at(image, y, x, out + m);
      if (m + 1 < count && ++x == plan.out_width) {
        x = 0;
        ++y;
      }
    }
  }

  void place_at(std::int64_t m, std::int64_t image, std::int64_t y, std::int64_t x) {
    place[m].to = dst + image * plan.dst.batch + y * plan.dst.row + x * plan.dst.pixel;
    if (added) {
      place[m].added = added + image * plan.added.batch + y * plan.added.row + x * plan.added.pixel;
    }
  }

  void places(std::int64_t image, std::int64_t pixel, std::int64_t count) {
    if (dense) {
      float* to = dst + image * plan.dst.batch + pixel * plan.dst.pixel;
      for (std::int64_t m = 0; m < count; ++m) place[m].to = to + m * plan.dst.pixel;
      if (added) {
        const float* plus = added + image * plan.added.batch + pixel * plan.added.pixel;
        for (std::int64_t m = 0; m < count; ++m) place[m].added = plus + m * plan.added.pixel;
      }
      return;
    }
    std::int64_t y = pixel / plan.out_width, x = pixel % plan.out_width;
    for (std::int64_t m = 0; m < count; ++m) {
      place_at(m, image, y, x);
      if (++x == plan.out_width) {
        x = 0;
        ++y;
      }
    }
  }

  // Pointers and places for `count` pixels of all images: a pixel of every image, then the next.
  void point_together(const float* images, std::int64_t begin, std::int64_t count) {
    std::int64_t image = begin % plan.batch, pixel = begin / plan.batch;
    for (std::int64_t m = 0; m < count; ++m) {
      const std::int64_t y = pixel / plan.out_width, x = pixel % plan.out_width;
      point_at(images + image * plan.src.batch, y, x,
               from + m / kPixels * taps * kPixels + m % kPixels);
      place_at(m, image, y, x);
      if (++image == plan.batch) {
        image = 0;
        ++pixel;
      }
    }
  }

  // Not part of another function, whose variables would take the registers of the inner loop.
  template <bool Adds>
  [[gnu::noinline]] void panel_of_chunk(Tile tile_, End end, std::int64_t channel, std::int64_t count,
                      std::int64_t pixels) const {
    const Place* to = place;
    tile_.from = from;
    // The next panel's weights on their way to the second-level cache, a few lines at a time.
    const std::int64_t lines = taps * plan.in;
    const std::int64_t each = lines < kFewLines ? 0 : lines / (pixels / kPixels + 1) + 1;
    const float* next = tile_.weights + lines * kPanel;
    for (; pixels >= kPixels; pixels -= kPixels) {
      for (std::int64_t i = 0; i < each; ++i) __builtin_prefetch(next + i * kPanel, 0, 2);
      next += each * kPanel;
      tile<kPixels, Adds>(tile_, end, to, channel, count);
      activate(to, kPixels, channel, count);
      tile_.from += taps * kPixels;
      to += kPixels;
    }
    switch (pixels) {
      case 1: tile<1, Adds>(tile_, end, to, channel, count); break;
      case 2: tile<2, Adds>(tile_, end, to, channel, count); break;
      case 3: tile<3, Adds>(tile_, end, to, channel, count); break;
      case 4: tile<4, Adds>(tile_, end, to, channel, count); break;
      case 5: tile<5, Adds>(tile_, end, to, channel, count); break;
      default: break;
    }
    activate(to, pixels, channel, count);
  }

  // Of one image, or of all.
  void group_of_channels(std::int64_t image, std::int64_t g) {
    const std::int64_t all_pixels = together ? plan.batch * pixels : pixels;
    // As many pixels as keep their input in the second-level cache, and their pointers here.
    std::int64_t chunk = least<std::int64_t>(kChunk, kPointers / (taps * kPixels));
    chunk = most<std::int64_t>(1, least<std::int64_t>(chunk, kCached / (kPixels * plan.in * 4)));
    // Of about the same size: the last one, too, reads all weights.
    const std::int64_t groups = (all_pixels + kPixels - 1) / kPixels;
    const std::int64_t chunks = (groups + chunk - 1) / chunk;
    if (chunks > 0) chunk = (groups + chunks - 1) / chunks;
    const bool clamps = plan.low < plan.high;
    const float infinity = __builtin_inff();
    const End ends{splat(clamps ? plan.low : -infinity), splat(clamps ? plan.high : infinity)};
    const float* image_src = src + image * plan.src.batch + g * plan.in;
    const float* group_weights = weights + g * panels * taps * plan.in * kPanel;
    for (std::int64_t begin = 0; begin < all_pixels; begin += chunk * kPixels) {
      const std::int64_t end = least(all_pixels, begin + chunk * kPixels);
      if (together) {
        point_together(image_src, begin, end - begin);
      } else {
        for (std::int64_t p = begin, at = 0; p < end; p += kPixels, ++at) {
          point(image_src, p, least<std::int64_t>(kPixels, end - p), from + at * taps * kPixels);
        }
        places(image, begin, end - begin);
      }
      for (std::int64_t panel = plan.first_panel; panel < plan.last_panel; ++panel) {
        const std::int64_t channel = panel * kPanel, left = plan.out - channel;
        Tile tile_{};
        tile_.weights = group_weights + panel * taps * plan.in * kPanel;
        const std::int64_t all = g * plan.out + channel;
        if (bias) {
          tile_.start0 = left >= 8 ? load(bias + all) : load(bias + all, left);
          if (left > 8) tile_.start1 = left >= 16 ? load(bias + all + 8) : load(bias + all + 8, left - 8);
        }
        const std::int64_t count = least<std::int64_t>(left, kPanel);
        if (added) {
          panel_of_chunk<true>(tile_, ends, all, count, end - begin);
        } else {
          panel_of_chunk<false>(tile_, ends, all, count, end - begin);
        }
      }
      if (plan.epilogue.present && !activation) {
        for (std::int64_t p = begin; p < end; ++p) {
          float* row = place[p - begin].to;
          const std::int64_t number =
              together ? p % plan.batch * pixels + p / plan.batch : image * pixels + p;
          const std::int64_t first = g * plan.out + plan.first_panel * kPanel;
          const std::int64_t last = g * plan.out + least(plan.out, plan.last_panel * kPanel);
          for (std::int64_t c = first; c < last; c += kMaxBlock) {
            finish(plan.epilogue, call, row + c, number, c,
                   least<std::int64_t>(kMaxBlock, last - c));
          }
        }
      }
    }
  }
};

}  // namespace

void convolution(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const ConvolutionPlan*>(call.plan);
  Sweep sweep(plan, call);
  for (std::int64_t image = 0; image < (sweep.together ? 1 : plan.batch); ++image) {
    for (std::int64_t g = 0; g < plan.groups; ++g) sweep.group_of_channels(image, g);
  }
}

}  // namespace nimble::NIMBLE_ISA
