#include "../attention.h"

#include "../../core/kernels.h"
#include "product.h"
#include "softmax.h"

namespace nimble::NIMBLE_ISA {
namespace {

// Rows of `columns` elements into panels of 16, with zeros where there is no column.
void pack_columns(float* out, const float* in, std::int64_t rows, std::int64_t row,
                  std::int64_t columns) {
  for (std::int64_t n = 0; n < columns; n += kPanel) {
    const std::int64_t left = columns - n;
    for (std::int64_t r = 0; r < rows; ++r, out += kPanel) {
      for (int c = 0; c < kPanel; ++c) out[c] = c < left ? in[r * row + n + c] : 0.0f;
    }
  }
}

struct Head {
  const AttentionPlan& plan;
  float *y, *sums;
  const float *q, *k, *mask;
  const float* packed_keys;  // null if there are too few queries for packing to pay
  Panels values;
  float* scores;
  std::int64_t score_row;

  std::int64_t visible(std::int64_t query) const {
    return plan.causal ? least(plan.keys, query + 1) : plan.keys;
  }

  void some_queries(std::int64_t query, std::int64_t rows) const {
    const std::int64_t keys = visible(query + rows - 1);
    const float* queries = q + query * plan.q.row;
    float factor[kAttentionRows];
    for (float& f : factor) f = plan.scale;
    if (packed_keys) {
      const Panels panels{packed_keys, kPanel, plan.dim * kPanel};
      product_of<true>(rows, scores, score_row, queries, plan.q.row, panels, keys, plan.dim,
                       factor);
    } else {
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t i = 0; i < keys; ++i) {
          scores[r * score_row + i] =
              dot(queries + r * plan.q.row, k + i * plan.k.row, plan.dim) * plan.scale;
        }
      }
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = scores + r * score_row;
      const std::int64_t n = visible(query + r);
      if (mask) add_mask(row, mask + (query + r) * plan.m.row, plan.mask_key, n);
      const float top = largest_of(row, n);
      float log_of_sum = __builtin_inff();
      if (top == -__builtin_inff()) {  // a query that sees nothing gives 0, as in PyTorch
        for (std::int64_t i = 0; i < n; ++i) row[i] = 0.0f;
        factor[r] = 0.0f;
      } else {
        const float sum = exp_row(row, row, n, top);
        factor[r] = 1.0f / sum;
        if (sums) log_of_sum = top + __builtin_logf(sum);
      }
      if (sums) sums[(query + r) * plan.sums.row] = log_of_sum;
      for (std::int64_t i = n; i < keys; ++i) row[i] = 0.0f;
    }
    product_of<false>(rows, y + query * plan.y.row, plan.y.row, scores, score_row, values,
                      plan.value_dim, keys, factor);
  }
};

}  // namespace

void attention(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const AttentionPlan*>(call.plan);
  const std::int64_t padded = (plan.keys + kPanel - 1) / kPanel * kPanel;
  const bool packs_keys = plan.queries * plan.group >= 4;  // otherwise it does not pay
  const bool packs_values = plan.value_dim % kPanel != 0;
  auto* scores = call.operand<float>(1);
  float* keys = scores + padded * kAttentionRows;
  float* values = keys + padded * plan.dim;
  float* last = plan.has_sums ? call.operand<float>(plan.mask ? 6 : 5) : nullptr;
  for (std::int64_t b = 0; b < plan.batch; ++b) {
    for (std::int64_t h = 0; h < plan.heads; ++h) {
      const std::int64_t shared = h / plan.group;
      const float* k = call.operand<const float>(3) + b * plan.k.batch + shared * plan.k.head;
      const float* v = call.operand<const float>(4) + b * plan.v.batch + shared * plan.v.head;
      if (h % plan.group == 0) {
        if (packs_keys) pack_turned(keys, k, plan.keys, plan.k.row, plan.dim);
        if (packs_values) pack_columns(values, v, plan.keys, plan.v.row, plan.value_dim);
      }
      const Head head{
          plan,
          call.operand<float>(0) + b * plan.y.batch + h * plan.y.head,
          plan.has_sums ? last + b * plan.sums.batch + h * plan.sums.head : nullptr,
          call.operand<const float>(2) + b * plan.q.batch + h * plan.q.head,
          k,
          plan.mask ? call.operand<const float>(5) + b * plan.m.batch + h * plan.m.head : nullptr,
          packs_keys ? keys : nullptr,
          packs_values ? Panels{values, kPanel, plan.keys * kPanel} : Panels{v, plan.v.row, kPanel},
          scores,
          padded};
      for (std::int64_t i = 0; i < plan.queries; i += kAttentionRows) {
        head.some_queries(i, least(kAttentionRows, plan.queries - i));
      }
    }
  }
}

}  // namespace nimble::NIMBLE_ISA
