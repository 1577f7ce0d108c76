#pragma once

#include "reader.h"
#include "rows.h"

namespace nimble {

// Reads [dims, sizes..., strides of operand 0..., strides of operand 1...]. Neighbouring
// dimensions become one where all strides allow it.
Rows read_rows(Reader& reader, int operands);

}  // namespace nimble
