// Post operations as Python writes them.
#pragma once

#include <nanobind/nanobind.h>

#include "post.h"

namespace nimble::onednn {

// ("eltwise", kind, alpha, beta), ("sum", scale) or ("binary", kind, Desc). Throws
// std::invalid_argument with the one that is none of these.
Post post_from(nanobind::sequence post);

}  // namespace nimble::onednn
