#include "../attention.h"

#include "../../core/kernels.h"
#include "product.h"
#include "softmax.h"

namespace nimble::NIMBLE_ISA {
namespace {

// One head. Scores are turned: a row for every key, a column for every query, so that what belongs
// to a query (its sum, its share) is a vector beside them, and rows of dk and dv are whole products.
struct Head {
  const AttentionGradientPlan& plan;
  float *dq, *dk, *dv;
  const float *dy, *q, *k, *v, *y, *sums, *mask;
  float *turned_q, *turned_dy;  // panels of 16 queries
  float *sum, *share;           // of every query: its sum, and dy y
  float *probabilities;         // of some keys
  float *dscores;               // of all keys
  std::int64_t width;           // queries, up to a whole panel

  void look_at_queries() const {
    pack_turned(turned_q, q, plan.queries, plan.q.row, plan.dim);
    pack_turned(turned_dy, dy, plan.queries, plan.dy.row, plan.value_dim);
    for (std::int64_t i = 0; i < plan.queries; ++i) {
      sum[i] = sums[i * plan.sums.row];
      share[i] = dot(dy + i * plan.dy.row, y + i * plan.y.row, plan.value_dim);
    }
    for (std::int64_t i = plan.queries; i < width; ++i) {  // the probability of nobody is 0
      sum[i] = __builtin_inff();
      share[i] = 0.0f;
    }
  }

  void add_mask_of(float* scores, std::int64_t key, std::int64_t from) const {
    const float* at = mask + key * plan.mask_key;
    if (plan.m.row == 0) {
      const Floats value = splat(*at);
      for (std::int64_t i = from; i < width; i += kLanes) store(scores + i, load(scores + i) + value);
    } else {
      add_mask(scores + from, at + from * plan.m.row, plan.m.row, plan.queries - from);
    }
  }

  // Scores into probabilities, and the gradient of probabilities into that of scores.
  void through_softmax(float* p, float* d, std::int64_t key, std::int64_t from) const {
    const Floats scale = splat(plan.scale), zero = splat(0.0f);
    for (std::int64_t i = from; i < width; i += kLanes) {
      Floats x = exp_of_negative(load(p + i) - load(sum + i));
      if (plan.causal && i < key) {
        x = select(first(least<std::int64_t>(kLanes, key - i)), zero, x);
      }
      store(p + i, x);
      store(d + i, x * (load(d + i) - load(share + i)) * scale);
    }
  }

  void some_keys(std::int64_t key, std::int64_t rows) const {
    float one[kAttentionRows], factor[kAttentionRows];
    for (int r = 0; r < kAttentionRows; ++r) one[r] = 1.0f, factor[r] = plan.scale;
    const std::int64_t from = plan.causal ? least(key / kPanel * kPanel, width) : 0;
    const std::int64_t seen = most<std::int64_t>(0, plan.queries - from);
    float* d = dscores + key * width;
    product_of<true>(rows, probabilities + from, width, k + key * plan.k.row, plan.k.row,
                     {turned_q + from * plan.dim, kPanel, plan.dim * kPanel}, width - from,
                     plan.dim, factor);
    product_of<true>(rows, d + from, width, v + key * plan.v.row, plan.v.row,
                     {turned_dy + from * plan.value_dim, kPanel, plan.value_dim * kPanel},
                     width - from, plan.value_dim, one);
    for (std::int64_t r = 0; r < rows; ++r) {
      float* scores = probabilities + r * width;
      if (mask && seen > 0) add_mask_of(scores, key + r, from);
      through_softmax(scores, d + r * width, key + r, from);
      // Queries just before are multiplied together with the first that see this key.
      for (std::int64_t i = most<std::int64_t>(0, from - kPanel); i < from; ++i) {
        d[r * width + i] = 0.0f;
      }
    }
    product_of<false>(rows, dv + key * plan.dv.row, plan.dv.row, probabilities + from, width,
                      {dy + from * plan.dy.row, plan.dy.row, kPanel}, plan.value_dim, seen, one);
    product_of<false>(rows, dk + key * plan.dk.row, plan.dk.row, d + from, width,
                      {q + from * plan.q.row, plan.q.row, kPanel}, plan.dim, seen, one);
  }

  void some_queries(std::int64_t query, std::int64_t rows) const {
    float one[kAttentionRows];
    for (float& f : one) f = 1.0f;
    const std::int64_t keys = plan.causal ? least(plan.keys, query + rows) : plan.keys;
    product_of<false, Lies::kInColumns>(rows, dq + query * plan.dq.row, plan.dq.row,
                                        dscores + query, width, {k, plan.k.row, kPanel}, plan.dim,
                                        keys, one);
  }
};

}  // namespace

void attention_gradient(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const AttentionGradientPlan*>(call.plan);
  const std::int64_t width = (plan.queries + kPanel - 1) / kPanel * kPanel;
  auto* turned_q = call.operand<float>(3);
  float* turned_dy = turned_q + width * plan.dim;
  float* sum = turned_dy + width * plan.value_dim;
  float* probabilities = sum + 2 * width;
  for (std::int64_t b = 0; b < plan.batch; ++b) {
    for (std::int64_t h = 0; h < plan.heads; ++h) {
      const auto at = [b, h](const Strides3& s) { return b * s.batch + h * s.head; };
      const Head head{
          plan,
          call.operand<float>(0) + at(plan.dq),
          call.operand<float>(1) + at(plan.dk),
          call.operand<float>(2) + at(plan.dv),
          call.operand<const float>(4) + at(plan.dy),
          call.operand<const float>(5) + at(plan.q),
          call.operand<const float>(6) + at(plan.k),
          call.operand<const float>(7) + at(plan.v),
          call.operand<const float>(8) + at(plan.y),
          call.operand<const float>(9) + at(plan.sums),
          plan.mask ? call.operand<const float>(10) + at(plan.m) : nullptr,
          turned_q,
          turned_dy,
          sum,
          sum + width,
          probabilities,
          probabilities + kAttentionRows * width,
          width};
      head.look_at_queries();
      for (std::int64_t i = 0; i < plan.keys; i += kAttentionRows) {
        head.some_keys(i, least(kAttentionRows, plan.keys - i));
      }
      for (std::int64_t i = 0; i < plan.queries; i += kAttentionRows) {
        head.some_queries(i, least(kAttentionRows, plan.queries - i));
      }
    }
  }
}

}  // namespace nimble::NIMBLE_ISA
