#pragma once

#include <cstdint>

#include "dispatch.h"

namespace nimble {

inline constexpr std::int64_t kAttentionRows = 6;  // queries whose scores are kept at once

struct Strides3 {
  std::int64_t batch, head, row;
};

// y = softmax(q kT scale + mask) v for every batch and head.
struct AttentionPlan {
  std::int64_t batch, heads, group;  // `group` heads share the keys and values of one
  std::int64_t queries, keys, dim, value_dim;
  bool causal, mask;
  Strides3 y, q, k, v, m;
  std::int64_t mask_key;  // stride
  float scale;
};

// Floats of the scratch operand: keys packed, values packed if not a multiple of 16 wide, scores.
std::int64_t attention_scratch(std::int64_t keys, std::int64_t dim, std::int64_t value_dim);

NIMBLE_KERNEL(attention)

}  // namespace nimble
