#include "parse_rows.h"

namespace nimble {

Rows read_rows(Reader& reader, int operands) {
  Rows rows;
  rows.dims = static_cast<int>(reader.between("outer dimensions", 0, kMaxOuter));
  for (int d = 0; d < rows.dims; ++d) {
    rows.size[d] = reader.size("outer size");
    rows.count *= rows.size[d];
    if (rows.count > Reader::kMost) reader.refuse("has too many rows");
  }
  for (int i = 0; i < operands; ++i) {
    for (int d = 0; d < rows.dims; ++d) rows.stride[i][d] = reader.stride("outer stride");
  }
  for (int d = rows.dims - 1; d > 0; --d) {
    bool even = true;
    for (int i = 0; i < operands; ++i) {
      even &= rows.stride[i][d - 1] == rows.stride[i][d] * rows.size[d] || rows.size[d - 1] == 1;
    }
    if (!even) continue;
    rows.size[d - 1] *= rows.size[d];
    for (int i = 0; i < operands; ++i) rows.stride[i][d - 1] = rows.stride[i][d];
    --rows.dims;
    for (int e = d; e < rows.dims; ++e) {
      rows.size[e] = rows.size[e + 1];
      for (int i = 0; i < operands; ++i) rows.stride[i][e] = rows.stride[i][e + 1];
    }
  }
  return rows;
}

}  // namespace nimble
