// What a primitive does to its result before it is stored, in order.
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include <variant>
#include <vector>

#include "desc.h"

namespace nimble::onednn {

struct PostEltwise {
  dnnl_alg_kind_t kind;
  float alpha, beta;
};

// Adds `scale` times what the destination held before.
struct PostSum {
  float scale;
};

// Combines with another tensor, an operand of its own.
struct PostBinary {
  dnnl_alg_kind_t kind;
  Desc other;
};

using Post = std::vector<std::variant<PostEltwise, PostSum, PostBinary>>;

// Some primitives take a sum and then leave it out: theirs are not to be offered.
bool has_sum(const Post& post);

// With these, and with the scratchpad as an operand.
Attributes attributes(const Post& post);

}  // namespace nimble::onednn
