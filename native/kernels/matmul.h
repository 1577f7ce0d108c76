#pragma once

#include "linear.h"
#include "rows.h"

namespace nimble {

// y[b, m, n] = sum over k of x[b, m, k] w[b, k, n], where w is not known ahead.
struct MatmulPlan {
  std::int64_t m, n, k;
  std::int64_t y_row, x_row, w_row, w_column;  // strides
  Rows batch;                                  // of y, x, w
  Epilogue epilogue;
};

NIMBLE_KERNEL(matmul)

}  // namespace nimble
