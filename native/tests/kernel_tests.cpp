// Native kernels on memory of exactly the size they may touch, for AddressSanitizer.
#include <cmath>
#include <cstdint>
#include <functional>
#include <mutex>
#include <numeric>
#include <vector>

#include "../kernels/attention.h"
#include "../kernels/program.h"
#include "../kernels/winograd.h"
#include "check.h"
#include "replay.h"
#include "tape.h"

namespace {

using Floats = std::vector<float>;
using Ints = std::vector<std::int64_t>;

Floats numbers(std::int64_t count) {
  Floats values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 17) - 7.5f;
  return values;
}

bool near(float a, float b) { return std::abs(a - b) <= 1e-3f * (1.0f + std::abs(b)); }

void run(const char* kernel, const std::vector<void*>& operands, const Ints& ints,
         const std::vector<double>& floats = {}) {
  nimble::Tape tape(1, 1, static_cast<std::int64_t>(operands.size()));
  std::vector<std::pair<std::int64_t, std::int64_t>> at;
  for (std::size_t i = 0; i < operands.size(); ++i) at.emplace_back(i, 0);
  tape.native(0, 0, kernel, at, ints, floats);
  tape.finish();
  for (std::size_t i = 0; i < operands.size(); ++i) {
    tape.set_slot(static_cast<std::int64_t>(i), operands[i]);
  }
  const std::lock_guard held(tape);
  nimble::replay(tape);
}

constexpr auto op(nimble::Op code) { return static_cast<std::int64_t>(code); }

}  // namespace

TEST(pointwise_programs_stay_within_their_operands) {
  for (const std::int64_t n : {1, 7, 8, 9, 511, 512, 513, 1100}) {
    Floats x = numbers(3 * n), bias = numbers(n), y(x.size());
    run("pointwise.float32", {y.data(), x.data(), bias.data()},
        {1, 2, 2, 3, n, 0, n, 1, 0, n, 1, 0, 0, 1, 2, op(nimble::Op::add), 3, 0, 1, 0,
         op(nimble::Op::tanh), 2, 3, 0, 0});
    for (std::size_t i = 0; i < y.size(); ++i) {
      CHECK(near(y[i], std::tanh(x[i] + bias[i % static_cast<std::size_t>(n)])));
    }
  }
}

TEST(linear_stays_within_its_operands) {
  for (std::int64_t m = 1; m <= 13; ++m) {
    for (const std::int64_t n : {1, 15, 16, 17, 40}) {
      const std::int64_t k = 5, panels = (n + 15) / 16;
      Floats w = numbers(n * k), x = numbers(m * k), bias = numbers(n);
      Floats packed(static_cast<std::size_t>(panels * 16 * k)), y(static_cast<std::size_t>(m * n));
      run("pack_linear.float32", {packed.data(), w.data()}, {n, k, k, 1});
      run("linear.float32", {y.data(), x.data(), packed.data(), bias.data()},
          {m, n, n, 0, panels, k, k, 1, 0, 0, 0, 1, op(nimble::Op::neg), 1, 0, 0, 0});
      for (std::int64_t r = 0; r < m; ++r) {
        for (std::int64_t c = 0; c < n; ++c) {
          const float* row = &x[static_cast<std::size_t>(r * k)];
          const float exact = std::inner_product(row, row + k, &w[static_cast<std::size_t>(c * k)],
                                                 bias[static_cast<std::size_t>(c)]);
          CHECK(near(y[static_cast<std::size_t>(r * n + c)], -exact));
        }
      }
    }
  }
}

TEST(rows_stay_within_their_operands) {
  for (const std::int64_t n : {1, 8, 13, 33, 100}) {
    Floats x = numbers(3 * n), y(x.size()), weight = numbers(n);
    run("layer_norm.float32", {y.data(), x.data(), weight.data()},
        {n, 1, 0, 1, 3, n, n}, {1e-5});
    const auto over = [](float a, float b) { return a / b; };
    CHECK(near(std::inner_product(y.begin(), y.begin() + n, weight.begin(), 0.0f, std::plus<>(), over),
               0.0f));
    run("softmax.float32", {y.data(), x.data()}, {n, 1, 3, n, n});
    CHECK(near(std::accumulate(y.begin(), y.begin() + n, 0.0f), 1.0f));
    Floats sums(3), columns(static_cast<std::size_t>(n));
    run("sum.float32", {sums.data(), x.data()}, {1, 3, 1, n, 1, n, 1});
    run("max.float32", {columns.data(), x.data()}, {1, n, 1, 1, 1, 3, n});
    CHECK(near(sums[0], std::accumulate(x.begin(), x.begin() + n, 0.0f)));
    Ints best(3);
    run("argmax.float32", {best.data(), x.data()}, {n, 1, 1, 3, 1, n});
  }
}

TEST(images_stay_within_their_operands) {
  const std::int64_t h = 5, w = 7;
  for (const std::int64_t c : {1, 8, 11, 45}) {
    Floats x = numbers(h * w * c), y(x.size()), z(x.size());
    Floats pooled(static_cast<std::size_t>(6 * c));
    run("copy_strided", {y.data(), x.data()}, {4, 2, c, h * w, h * w, 1, 1, c, 0});
    run("copy_strided", {z.data(), y.data()}, {4, 2, h * w, c, c, 1, 1, h * w, 0});
    CHECK(z == x);
    run("max_pool_nhwc.float32", {pooled.data(), x.data()},
        {1, c, h, w, 2, 3, 6 * c, 3 * c, c, h * w * c, w * c, c, 3, 2, 0, 1, 3, 2, 0, 1});
    run("group_norm_nhwc.float32", {y.data(), x.data()},
        {1, c, h * w, 1, h * w * c, c, h * w * c, c, 0, 0}, {1e-5});
    Floats padded(static_cast<std::size_t>((h + 2) * (w + 2) * c));
    run("pad.float32", {padded.data(), x.data()},
        {3, h + 2, w + 2, c, 1, 1, 0, h, w, c, (w + 2) * c, c, 1, w * c, c, 1}, {0.0});
  }
}

TEST(convolutions_stay_within_their_operands) {
  for (const std::int64_t width : {1, 3, 5, 7, 11, 13, 40}) {
    for (const std::int64_t out : {1, 8, 9, 15, 16, 24, 35}) {
      const std::int64_t h = 3, in = 8, panels = (out + 15) / 16;
      const Ints taps = {3, 3, 1, 1, 1, 1, 1, 1};  // kernel, stride, dilation, padding
      const auto strides = [&](std::int64_t c) { return Ints{h * width * c, width * c, c}; };
      const auto calls = [&](Ints ints, std::int64_t groups, std::int64_t of_in, std::int64_t of_out) {
        ints.insert(ints.end(), {1, h, width, 0, h, width, groups, of_in, of_out, 0, panels});
        return ints;
      };
      Floats x = numbers(h * width * in), bias = numbers(out);
      Floats added = numbers(h * width * out), y(added.size()), other(added.size());
      Floats w(static_cast<std::size_t>(panels * 9 * in * 16));
      for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 5) - 2.0f;
      const auto ends = [&](Ints ints, std::int64_t from) {
        ints.insert(ints.end(), taps.begin(), taps.end());
        for (const Ints& s : {strides(from), strides(out)}) ints.insert(ints.end(), s.begin(), s.end());
        ints.insert(ints.end(), {1, 1});
        const Ints s = strides(out);
        ints.insert(ints.end(), s.begin(), s.end());
        ints.push_back(1);
        return ints;
      };
      run("convolution.float32", {y.data(), x.data(), w.data(), bias.data(), added.data()},
          ends(calls({}, 1, in, out), in), {-1000.0, 1000.0});
      for (const std::int64_t side : {2, 4}) {
        const std::int64_t elements = (side + 2) * (side + 2), block = 7;
        Floats turned(static_cast<std::size_t>(panels * elements * in * 16));
        const std::int64_t row = in + nimble::winograd_panels * 16;
        Floats scratch(static_cast<std::size_t>(elements * (block * row + 2 * 16)));
        run("pack_winograd.float32", {turned.data(), w.data()}, {side, panels, in});
        run("winograd.float32",
            {other.data(), scratch.data(), x.data(), turned.data(), bias.data(), added.data()},
            ends(calls({side, block}, 1, in, out), in), {-1000.0, 1000.0});
        for (std::size_t i = 0; i < y.size(); ++i) CHECK(near(other[i], y[i]));
      }
      Ints ints = calls({}, out, 1, 1);
      ints.push_back(out);  // between taps
      Floats image = numbers(h * width * out), each = numbers(9 * out);
      run("depthwise.float32", {y.data(), image.data(), each.data(), bias.data(), added.data()},
          ends(ints, out), {-1e9, 1e9});
      // The middle pixel of a row of one is made from the three above each other.
      for (std::int64_t c = 0; width == 1 && c < out; ++c) {
        const auto at = [&](const Floats& from, std::int64_t i) {
          return from[static_cast<std::size_t>(i * out + c)];
        };
        float exact = bias[static_cast<std::size_t>(c)] + at(added, 1);
        for (std::int64_t i = 0; i < 3; ++i) exact += at(image, i) * at(each, 3 * i + 1);
        CHECK(near(at(y, 1), exact));
      }
    }
  }
}

TEST(attention_stays_within_its_operands) {
  for (const std::int64_t queries : {1, 5, 6, 13}) {
    for (const std::int64_t dim : {5, 16}) {
      const std::int64_t keys = 19;
      Floats q = numbers(queries * dim), k = numbers(keys * dim), y(q.size());
      Floats v(k.size(), 2.0f);
      Floats scratch(static_cast<std::size_t>(nimble::attention_scratch(keys, dim, dim)));
      run("attention.float32", {y.data(), scratch.data(), q.data(), k.data(), v.data()},
          {1, 1, 1, queries, keys, dim, dim, 1, 0, 0, 0, 0, dim, 0, 0, dim, 0, 0, dim, 0, 0, dim},
          {0.1});
      for (const float value : y) CHECK(near(value, 2.0f));
    }
  }
}

TEST(attention_gradient_stays_within_its_operands) {
  for (const std::int64_t queries : {1, 5, 16, 23}) {
    for (const std::int64_t keys : {1, 6, 19, 40}) {
      const std::int64_t dim = 16;
      Floats q = numbers(queries * dim), k = numbers(keys * dim), v = numbers(keys * dim);
      Floats dq(q.size()), dk(k.size()), dv(k.size()), dy = q, y = q;
      Floats sums(static_cast<std::size_t>(queries), 9.0f);
      Floats scratch(static_cast<std::size_t>(
          nimble::attention_gradient_scratch(queries, keys, dim, dim)));
      for (const std::int64_t causal : {0, 1}) {
        Ints ints = {1, 1, queries, keys, dim, dim, causal, 0};
        for (int i = 0; i < 8; ++i) ints.insert(ints.end(), {0, 0, dim});
        ints.insert(ints.end(), {0, 0, 1});
        run("attention_gradient.float32",
            {dq.data(), dk.data(), dv.data(), scratch.data(), dy.data(), q.data(), k.data(),
             v.data(), y.data(), sums.data()},
            ints, {0.1});
        for (const float value : dq) CHECK(value == value);
      }
    }
  }
}

TEST(losses_stay_within_their_operands) {
  constexpr std::int64_t kIgnored = -100;
  for (const std::int64_t classes : {1, 7, 16, 33}) {
    const auto n = static_cast<std::size_t>(classes);
    Ints targets = {0, kIgnored, classes - 1};
    const std::int64_t rows = static_cast<std::int64_t>(targets.size());
    Floats x = numbers(rows * classes), y(x.size()), losses(targets.size());
    Floats shifts(2 * targets.size()), total(1), count(1), given{2.0f};
    run("cross_entropy.float32", {losses.data(), shifts.data(), x.data(), targets.data()},
        {rows, classes, kIgnored, classes});
    run("total_loss.float32", {total.data(), count.data(), losses.data(), targets.data()},
        {rows, kIgnored, 1});
    run("cross_entropy_gradient.float32",
        {y.data(), x.data(), targets.data(), shifts.data(), given.data(), count.data()},
        {rows, classes, kIgnored, 1, classes, classes});
    float sum = 0.0f;
    for (std::size_t r = 0; r < targets.size(); ++r) {
      float all = 0.0f;
      for (std::size_t c = 0; c < n; ++c) all += std::exp(x[r * n + c]);
      const bool counts = targets[r] != kIgnored;
      if (counts) sum += std::log(all) - x[r * n + static_cast<std::size_t>(targets[r])];
      for (std::size_t c = 0; c < n; ++c) {
        const bool hit = static_cast<std::int64_t>(c) == targets[r];
        CHECK(near(y[r * n + c], counts ? std::exp(x[r * n + c]) / all - (hit ? 1.0f : 0.0f) : 0.0f));
      }
    }
    CHECK(near(total[0], sum / 2) && count[0] == 2.0f);
    targets[1] = classes;
    CHECK(refusal([&] {
            run("cross_entropy.float32", {losses.data(), shifts.data(), x.data(), targets.data()},
                {rows, classes, kIgnored, classes});
          }) == "Target " + std::to_string(classes) + " is out of bounds.");
  }
}

TEST(an_index_out_of_range_is_refused) {
  Floats table = numbers(12), y(6);
  Ints index = {3, 4};
  const std::string message = refusal([&] {
    run("gather_rows", {y.data(), table.data(), index.data()},
        {4, 1, 2, 3, 4, 0, 3, 0, 3, 0, 1, 0});
  });
  CHECK(message == "index out of range in self: 4 of 4");
}
