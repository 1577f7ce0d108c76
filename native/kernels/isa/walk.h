#pragma once

#include "../rows.h"
#include "vec.h"

namespace nimble::NIMBLE_ISA {

// The offset of every operand as one goes from row to row.
struct Walk {
  const Rows& rows;
  std::int64_t at[kMaxRowOperands] = {};
  std::int64_t index[kMaxOuter] = {};

  void next() {
    for (int d = rows.dims - 1; d >= 0; --d) {
      ++index[d];
      for (int i = 0; i < kMaxRowOperands; ++i) at[i] += rows.stride[i][d];
      if (index[d] < rows.size[d]) return;
      for (int i = 0; i < kMaxRowOperands; ++i) at[i] -= index[d] * rows.stride[i][d];
      index[d] = 0;
    }
  }
};

}  // namespace nimble::NIMBLE_ISA
