// Rows of operands: a few outer dimensions, each operand with a stride for each.
#pragma once

#include <cstdint>

namespace nimble {

inline constexpr int kMaxOuter = 5, kMaxRowOperands = 4;

struct Rows {
  int dims = 0;
  std::int64_t count = 1;  // of rows
  std::int64_t size[kMaxOuter] = {};
  std::int64_t stride[kMaxRowOperands][kMaxOuter] = {};
};

}  // namespace nimble
