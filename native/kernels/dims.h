// Dimensions of strided operands, brought into the order that makes long rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "program.h"
#include "reader.h"

namespace nimble {

using Dim = std::vector<std::int64_t>;  // the size, then a stride per operand

// Reads [dims, sizes...].
std::vector<Dim> read_sizes(Reader& reader, std::size_t operands);
// Reads the strides of an operand.
void read_strides(Reader& reader, std::vector<Dim>& dims, std::size_t operand);

bool is_empty(const std::vector<Dim>& dims);

// Sorts by the strides of operand 0: where rows are written without gaps, most are read so. Then
// neighbours become one dimension where every operand steps through both evenly.
void collapse(std::vector<Dim>& dims);

// Puts dimensions of size 1 in front until there are that many.
void widen(std::vector<Dim>& dims, std::size_t count, std::size_t operands);

}  // namespace nimble
