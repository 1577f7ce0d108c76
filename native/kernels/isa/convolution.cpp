// Convolution as a matrix product that finds its rows through pointers: for every tap of the kernel
// and every output pixel, where the input pixel lies, or zeros where that is padding.
#include "../convolution.h"

#include "math.h"
#include "program.h"
#include "tile.h"
#include "zeros.h"

namespace nimble::NIMBLE_ISA {
namespace {

constexpr int kPixels = kWideRows;  // of the output, computed together with kWide panels of channels
constexpr std::int64_t kPointers = 4096, kChunk = 96;  // groups of kPixels
constexpr std::int64_t kFewLines = 48;                   // of weights; not worth fetching ahead
constexpr std::int64_t kCached = 256 * 1024;             // bytes of input in the second-level cache
constexpr std::int64_t kSmall = 64;                      // pixels of an image

template <class Element>
struct Taps {
  const Element* const* from;  // [tap][kPixels]
  const Element* weights;      // [tap][channel][kPanel]
  std::int64_t apart;          // from one panel of weights to the next
  Floats start[kWide * kPerPanel];  // the bias
  // With every so many lines of weights, one of each panel is fetched that lies so far ahead.
  std::int64_t every, ahead;
};

template <class Element>
NIMBLE_INLINE const Element* zeros() { return reinterpret_cast<const Element*>(kZeros); }

// Whether all of a tap lies outside of the image.
template <int M, class Element>
NIMBLE_INLINE bool padding(const Element* const (&x)[M]) {
  if (x[0] != zeros<Element>()) [[likely]] return false;
  for (int m = 1; m < M; ++m) {
    if (x[m] != zeros<Element>()) return false;
  }
  return true;
}

// M pixels by P panels of 16 channels. Few pixels have few sums: those are then made in `Parts` parts,
// so that one multiplication need not wait for the last. (More channels at once would do as well, but
// then weights are not read as they lie in memory, and a core fetches them more slowly.)
template <int M, int P, int Parts, class Element>
NIMBLE_INLINE void multiply(const Taps<Element>& tile, std::int64_t taps, std::int64_t in,
                            Floats (&sum)[M][P * kPerPanel]) {
  constexpr int kVectors = P * kPerPanel;
  Floats acc[Parts][M][kVectors] = {};
  const Element* w = tile.weights;
  const auto step = [&](Floats (&into)[M][kVectors], const Element* const(&x)[M], std::int64_t c) {
    decltype(load(w)) row[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      row[v] = load(w + v / kPerPanel * tile.apart + v % kPerPanel * kLanes);
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const auto s = splat(x[m][c]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) into[m][v] = fma(s, row[v], into[m][v]);
    }
    w += kPanel;
  };
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[0][m][v] = tile.start[v];
  }
  for (std::int64_t t = 0; t < taps; ++t) {
    const Element* x[M];
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) x[m] = tile.from[t * kPixels + m];
    if (padding(x)) {
      w += in * kPanel;
      continue;
    }
    std::int64_t c = 0;
    if constexpr (Parts > 1) {
      for (; c + Parts <= in; c += Parts) {
#pragma GCC unroll 4
        for (int part = 0; part < Parts; ++part) step(acc[part], x, c + part);
      }
    } else {
      while (c + tile.every <= in) {
#pragma GCC unroll 2
        for (int p = 0; p < P; ++p) __builtin_prefetch(w + p * tile.apart + tile.ahead, 0, 2);
        for (const std::int64_t stop = c + tile.every; c < stop; ++c) step(acc[0], x, c);
      }
    }
    for (; c < in; ++c) step(acc[0], x, c);
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      sum[m][v] = acc[0][m][v];
#pragma GCC unroll 4
      for (int part = 1; part < Parts; ++part) sum[m][v] += acc[part][m][v];
    }
  }
}

// M pixels by 8 channels, for the last channels of a group.
template <int M>
NIMBLE_INLINE void multiply_half(const Taps<float>& tile, std::int64_t taps, std::int64_t in,
                                 Eight (&acc)[M]) {
  const float* w = tile.weights;
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) acc[m] = first_eight(tile.start[0]);
  for (std::int64_t t = 0; t < taps; ++t) {
    const float* x[M];
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) x[m] = tile.from[t * kPixels + m];
    if (padding(x)) {
      w += in * kPanel;
      continue;
    }
    for (std::int64_t c = 0; c < in; ++c, w += kPanel) {
      const Eight row = load_eight(w);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) acc[m] = fma(splat_eight(x[m][c]), row, acc[m]);
    }
  }
}

struct Place {
  float* to;
  const float* added;
};

// Pixels in as few groups as can be, all of nearly the same size: a group of one takes longer.
struct Groups {
  std::int64_t count, size;  // of the smaller ones
  std::int64_t larger;       // have one more, and come first

  Groups(std::int64_t pixels, std::int64_t most_pixels)
      : count((pixels + most_pixels - 1) / most_pixels),
        size(pixels / count),
        larger(pixels % count) {}
  std::int64_t at(std::int64_t group) const { return size + (group < larger ? 1 : 0); }
};

struct End {
  Floats low, high;
  bool silu;  // in place of the bounds

  // Keeps the compiler from holding these, or what is found in `places`, in registers that the sums
  // and their operands need.
  [[gnu::always_inline]] inline void forget(const Place*& places) {
    asm("" : "+m"(low), "+m"(high), "+r"(places));
  }
};

template <class Element>
struct Sweep {
  const ConvolutionPlan& plan;
  const NativeCall& call;
  const Element* src;
  float* dst;
  const Element* weights;
  const float* bias;
  const float* added;
  const std::int64_t taps, panels;
  const std::int64_t pixels;  // of an image
  // Small images are computed together, the same pixel of all of them in a row: tiles are full, all
  // of a tile finds the same taps in the padding, and weights are read once.
  const bool together;
  const std::int64_t most_pixels;  // of a group
  const bool pixel_by_pixel;  // an output pixel is made from the input pixel of the same number
  const bool dense;           // rows of the output follow each other without gaps
  static constexpr bool kHalves = __is_same(Element, float);  // whether eight channels take less
  const Activation activation;  // of a tile, while it is in the first-level cache
  // Not initialised: that would take longer than a small convolution.
  std::int64_t tap_offset[kMaxTaps];
  const Element* from[kPointers];  // of a chunk: [group of pixels][tap][kPixels]
  Place place[kChunk * kPixels];

  Sweep(const ConvolutionPlan& plan, const NativeCall& call)
      : plan(plan),
        call(call),
        src(call.operand<const Element>(1)),
        dst(call.operand<float>(0)),
        weights(call.operand<const Element>(2)),
        bias(plan.bias ? call.operand<const float>(3) : nullptr),
        added(plan.add ? call.operand<const float>(plan.bias ? 4 : 3) : nullptr),
        taps(plan.kernel_h * plan.kernel_w),
        panels((plan.out + kPanel - 1) / kPanel),
        pixels((plan.last_row - plan.first_row) * plan.out_width),
        together(plan.batch > 1 && pixels <= kSmall),
        most_pixels(rows_together(
            plan.last_panel - plan.first_panel >= kWide ? kWideRows : kTileRows,
            together ? plan.src.batch : plan.stride_w * plan.src.pixel)),
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
                                         Floats x, std::int64_t count) const {
    float* to = place.to + channel;
    if (count >= kLanes) {
      if constexpr (Adds) x += load(place.added + channel);
      store(to, between(x, end.low, end.high));
    } else if (count > 0) {
      if constexpr (Adds) x += load(place.added + channel, count);
      store(to, between(x, end.low, end.high), count);
    }
  }
  template <bool Adds>
  [[gnu::always_inline]] inline void put_eight(const End& end, const Place& place,
                                               std::int64_t channel, Eight x,
                                               std::int64_t count) const {
    float* to = place.to + channel;
    const Eight low = first_eight(end.low), high = first_eight(end.high);
    if (count >= 8) {
      if constexpr (Adds) x += load_eight(place.added + channel);
      store(to, between(x, low, high));
    } else {
      if constexpr (Adds) x += load_eight(place.added + channel, count);
      store(to, between(x, low, high), count);
    }
  }

  template <int M, int P, bool Adds>
  [[gnu::always_inline]] inline void tile(const Taps<Element>& given, End& end, const Place* places,
                                          std::int64_t channel, std::int64_t count) const {
    constexpr int kVectors = P * kPerPanel;
    if (P > 1 || count > 8 || !kHalves) {
      Floats sum[M][kVectors];
      multiply<M, P, M == 1 ? 4 : M <= 3 ? 2 : 1>(given, taps, plan.in, sum);
      end.forget(places);
      if (!Adds && end.silu) {
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) {
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v) {
            store(places[m].to + channel + v * kLanes, silu_of(sum[m][v]));
          }
        }
        return;
      }
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          // All but the last vector are whole: of the last panel more than eight are there.
          const bool last = !kHalves || v + 1 == kVectors;
          const std::int64_t left = last ? count - v * kLanes : kLanes;
          put<Adds>(end, places[m], channel + v * kLanes, sum[m][v], left);
        }
      }
    } else if constexpr (kHalves) {
      Eight acc[M];
      multiply_half<M>(given, taps, plan.in, acc);
      end.forget(places);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        put_eight<Adds>(end, places[m], channel, acc[m], count);
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
  [[gnu::always_inline]] inline void point_at(const Element* image, std::int64_t y, std::int64_t x,
                                              const Element** out) const {
    const std::int64_t top = (y + plan.first_row) * plan.stride_h - plan.top;
    const std::int64_t left = x * plan.stride_w - plan.left;
    const Element* corner = image + top * plan.src.row + left * plan.src.pixel;
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
        out[t * kPixels] = there ? corner + tap_offset[t] : zeros<Element>();
      }
    }
  }

  // Pointers for output pixels [pixel, pixel + count) of one image.
  void point(const Element* image, std::int64_t pixel, std::int64_t count,
             const Element** out) const {
    if (pixel_by_pixel) {
      const Element* first = image + plan.first_row * plan.src.row + pixel * plan.src.pixel;
      for (std::int64_t m = 0; m < count; ++m) out[m] = first + m * plan.src.pixel;
      return;
    }
    std::int64_t y = pixel / plan.out_width, x = pixel % plan.out_width;
    for (std::int64_t m = 0; m < count; ++m) {
      point_at(image, y, x, out + m);
      if (++x == plan.out_width) {
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
  void point_together(const Element* images, std::int64_t begin, std::int64_t count) {
    std::int64_t image = begin % plan.batch, pixel = begin / plan.batch, m = 0;
    const Groups groups(count, most_pixels);
    for (std::int64_t group = 0; group < groups.count; ++group) {
      for (std::int64_t i = 0; i < groups.at(group); ++i, ++m) {
        const std::int64_t y = pixel / plan.out_width, x = pixel % plan.out_width;
        point_at(images + image * plan.src.batch, y, x, from + group * taps * kPixels + i);
        place_at(m, image, y, x);
        if (++image == plan.batch) {
          image = 0;
          ++pixel;
        }
      }
    }
  }

  // Groups [group, group + groups) of M pixels, the first of which is to go to `to`. Not part of
  // another function, whose variables would take the registers of the inner loop.
  template <int M, int P, bool Adds>
  [[gnu::noinline]] void groups_of(Taps<Element> tile_, End end, const Place* to, std::int64_t channel,
                                   std::int64_t count, std::int64_t group,
                                   std::int64_t groups) const {
    tile_.from = from + group * taps * kPixels;
    tile_.ahead = P * tile_.apart + group * kPanel;
    for (; groups > 0; --groups) {
      tile<M, P, Adds>(tile_, end, to, channel, count);
      if (!end.silu) activate(to, M, channel, count);
      tile_.from += taps * kPixels;
      tile_.ahead += kPanel;
      to += M;
    }
  }

  // Groups of up to kMost pixels, by their size.
  template <int kMost, int P, bool Adds>
  void groups_of_size(std::int64_t size, const Taps<Element>& tile_, const End& end, const Place* to,
                      std::int64_t channel, std::int64_t count, std::int64_t group,
                      std::int64_t groups) const {
    if constexpr (kMost > (P > 1 ? kFewestWideRows : 1)) {
      if (size < kMost) {
        return groups_of_size<kMost - 1, P, Adds>(size, tile_, end, to, channel, count, group, groups);
      }
    }
    groups_of<kMost, P, Adds>(tile_, end, to, channel, count, group, groups);
  }

  template <int P, bool Adds>
  void panels_of_chunk(Taps<Element> tile_, const End& end, std::int64_t channel, std::int64_t count,
                      const Groups& groups) const {
    // The next panel's weights on their way to the second-level cache, one line at a time: every
    // group fetches others. Not for a single group: it reads them once, in order, and the core itself
    // fetches ahead better.
    const bool fetches = taps * plan.in >= kFewLines && groups.count > 1;
    tile_.every = fetches ? groups.count : plan.in + 1;
    if (groups.larger > 0) {
      groups_of_size<kPixels, P, Adds>(groups.size + 1, tile_, end, place, channel, count, 0,
                                    groups.larger);
    }
    groups_of_size<kPixels, P, Adds>(groups.size, tile_, end, place + groups.larger * (groups.size + 1),
                                  channel, count, groups.larger, groups.count - groups.larger);
  }

  template <int P>
  void panels_of_chunk(const Taps<Element>& tile_, const End& end, std::int64_t channel,
                       std::int64_t count, const Groups& groups) const {
    if (added) {
      panels_of_chunk<P, true>(tile_, end, channel, count, groups);
    } else {
      panels_of_chunk<P, false>(tile_, end, channel, count, groups);
    }
  }

  // Whether the next panels are better multiplied together: eight channels take less by themselves.
  static bool is_wide(std::int64_t channels_left, std::int64_t pixels) {
    return kWide > 1 && pixels >= kFewestWideRows &&
           channels_left > (kWide - 1) * kPanel + (kHalves ? 8 : 0);
  }

  // Of one image, or of all.
  void group_of_channels(std::int64_t image, std::int64_t g) {
    const std::int64_t all_pixels = together ? plan.batch * pixels : pixels;
    // As many pixels as keep their input in the second-level cache, and their pointers here.
    std::int64_t chunk = least<std::int64_t>(kChunk, kPointers / (taps * kPixels));
    chunk = most<std::int64_t>(1, least<std::int64_t>(chunk, kCached / (most_pixels * plan.in * 4)));
    // Of about the same size: the last one, too, reads all weights.
    const std::int64_t groups = (all_pixels + most_pixels - 1) / most_pixels;
    const std::int64_t chunks = (groups + chunk - 1) / chunk;
    if (chunks > 0) chunk = (groups + chunks - 1) / chunks;
    const bool clamps = plan.low < plan.high;
    const float infinity = __builtin_inff();
    const Floats low = splat(clamps ? plan.low : -infinity);
    const Floats high = splat(clamps ? plan.high : infinity);
    const bool silu = is_silu(plan.epilogue) && !clamps && !added;
    const Element* image_src = src + image * plan.src.batch + g * plan.in;
    const Element* group_weights = weights + g * panels * taps * plan.in * kPanel;
    for (std::int64_t begin = 0; begin < all_pixels; begin += chunk * most_pixels) {
      const std::int64_t end = least(all_pixels, begin + chunk * most_pixels);
      const Groups groups_(end - begin, most_pixels);
      if (together) {
        point_together(image_src, begin, end - begin);
      } else {
        std::int64_t p = begin;
        for (std::int64_t group = 0; group < groups_.count; ++group) {
          point(image_src, p, groups_.at(group), from + group * taps * kPixels);
          p += groups_.at(group);
        }
        places(image, begin, end - begin);
      }
      for (std::int64_t panel = plan.first_panel; panel < plan.last_panel;) {
        const std::int64_t channel = panel * kPanel, left = plan.out - channel;
        const bool pair = panel + kWide <= plan.last_panel && is_wide(left, groups_.size);
        const std::int64_t width = pair ? kWide * kPanel : kPanel;
        Taps<Element> tile_{};
        tile_.apart = taps * plan.in * kPanel;
        tile_.weights = group_weights + panel * tile_.apart;
        const std::int64_t all = g * plan.out + channel;
        if (bias) {
          for (int v = 0; v * kLanes < least(left, width); ++v) {
            const float* from = bias + all + v * kLanes;
            const std::int64_t count = left - v * kLanes;
            tile_.start[v] = count >= kLanes ? load(from) : load(from, count);
          }
        }
        const std::int64_t count = least(left, width);
        const End ends{low, high, silu && count == width};
        if (pair) {
          panels_of_chunk<kWide>(tile_, ends, all, count, groups_);
        } else {
          panels_of_chunk<1>(tile_, ends, all, count, groups_);
        }
        panel += width / kPanel;
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

template <class Element>
NIMBLE_INLINE void convolution_of(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const ConvolutionPlan*>(call.plan);
  Sweep<Element> sweep(plan, call);
  for (std::int64_t image = 0; image < (sweep.together ? 1 : plan.batch); ++image) {
    for (std::int64_t g = 0; g < plan.groups; ++g) sweep.group_of_channels(image, g);
  }
}

}  // namespace

void convolution(void* context) { convolution_of<float>(context); }
void convolution_bfloat16(void* context) { convolution_of<Couple>(context); }

}  // namespace nimble::NIMBLE_ISA
