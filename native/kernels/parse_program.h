#pragma once

#include <map>
#include <string>
#include <vector>

#include "program.h"
#include "reader.h"

namespace nimble {

// Number of each operation by its name.
std::map<std::string, int> opcodes();

DType read_dtype(Reader& reader);

// Reads [instructions, (opcode, dst, a, b, c)...]. `may_alias` says of output o and input i
// whether they may be the same memory. The floats are constants from number `first_float` on.
Program read_program(Reader& reader, int inputs, int outputs, std::size_t first_float,
                     bool (*may_alias)(const Reader& reader, int output, int input));

// Whether such a program is compiled ahead of time.
bool is_known_program(int inputs, int outputs, const std::vector<std::int64_t>& ints,
                      const std::vector<double>& floats);

// Reads [extras, (dtype, row stride, inner stride)..., instructions...] if there are more ints.
// Checks that nothing follows, and the counts of operands and floats.
Epilogue read_epilogue(Reader& reader, std::size_t operands, std::size_t floats);

}  // namespace nimble
