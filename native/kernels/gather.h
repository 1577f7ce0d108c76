#pragma once

#include "dispatch.h"
#include "rows.h"

namespace nimble {

// out[o, i, :] = in[o, index[o, i], :]
struct GatherPlan {
  std::int64_t bytes;  // of a row
  std::int64_t outer, count, table;
  std::int64_t out_outer, out_row, in_outer, in_row;  // strides in bytes
  std::int64_t index_outer, index_step;
  bool wraps;  // negative indices count from the end
};

// out[index[i] - first, :] += in[i, :], from zeros on: the gradient of a table whose rows were
// gathered, or of `rows` of them.
struct ScatterPlan {
  std::int64_t length, rows, count, table, first;
  std::int64_t skipped;          // an index; less than 0: none
  std::int64_t out_row, in_row;  // strides
};

struct ArgPlan {
  Rows rows;  // of out, in
  std::int64_t length, step;
  bool least;
};

struct CumsumPlan {
  Rows rows;  // of out, in
  std::int64_t length, out_step, in_step;
};

// Not in isa/: it allocates, and is for every instruction set.
[[noreturn]] void refuse_index(std::int64_t index, std::int64_t rows);

NIMBLE_KERNEL(gather_rows)
NIMBLE_KERNEL(scatter_rows)
NIMBLE_KERNEL(argmax)
NIMBLE_KERNEL(cumsum)

}  // namespace nimble
