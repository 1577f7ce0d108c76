#pragma once

#include "dispatch.h"
#include "program.h"

namespace nimble {

inline constexpr int kPanel = 16;  // columns of packed weights that lie side by side

struct PackPlan {
  std::int64_t n, k, n_stride, k_stride;
};

// y[m, n] = sum over k of x[m, k] w[n, k], and more.
struct LinearPlan {
  std::int64_t m, n, y_stride;
  std::int64_t first_panel, last_panel;
  std::int64_t k, x_stride;
  bool bias, add;
  std::int64_t add_stride;
  Epilogue epilogue;
};

NIMBLE_KERNEL(pack_linear)
NIMBLE_KERNEL(linear)
NIMBLE_KERNEL(linear_bfloat16)  // k in couples

}  // namespace nimble
