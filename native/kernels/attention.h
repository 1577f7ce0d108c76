#pragma once

#include <cstdint>

#include "dispatch.h"

namespace nimble {

inline constexpr std::int64_t kAttentionRows = 6;  // queries whose scores are kept at once

struct Strides3 {
  std::int64_t batch, head, row;
};

// y = softmax(q kT scale + mask) v for every batch and head; of every query the logarithm of the sum
// of exponentials, if asked for: infinite if it sees nothing.
struct AttentionPlan {
  std::int64_t batch, heads, group;  // `group` heads share the keys and values of one
  std::int64_t queries, keys, dim, value_dim;
  bool causal, mask, has_sums;
  Strides3 y, q, k, v, m, sums;
  std::int64_t mask_key;  // stride
  float scale;
};

// The gradients of q, k and v, from that of y and the sums.
struct AttentionGradientPlan {
  std::int64_t batch, heads, queries, keys;
  std::int64_t dim, value_dim;  // multiples of 16
  bool causal, mask;
  Strides3 dq, dk, dv, dy, q, k, v, y, sums, m;
  std::int64_t mask_key;  // stride
  float scale;
};

// Floats of the scratch operand: keys packed, values packed if not a multiple of 16 wide, scores.
std::int64_t attention_scratch(std::int64_t keys, std::int64_t dim, std::int64_t value_dim);

// The same for the gradient: queries and their gradients turned, their sums, probabilities of some
// keys, and the gradient of all scores.
std::int64_t attention_gradient_scratch(std::int64_t queries, std::int64_t keys, std::int64_t dim,
                                        std::int64_t value_dim);

NIMBLE_KERNEL(attention)
NIMBLE_KERNEL(attention_gradient)

}  // namespace nimble
