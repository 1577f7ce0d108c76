// A chain of pointwise operations on registers, each a block of floats that stays in the L1 cache.
// The operation of "pointwise.float32", and the optional epilogue of other kernels.
#pragma once

#include <cstdint>

namespace nimble {

// X(name, operands). The order is the opcode: append only.
#define NIMBLE_OPCODES(X)                                                                         \
  X(copy, 1) X(add, 2) X(sub, 2) X(mul, 2) X(div, 2) X(maximum, 2) X(minimum, 2) X(neg, 1)        \
  X(abs, 1) X(sqrt, 1) X(rsqrt, 1) X(reciprocal, 1) X(square, 1) X(exp, 1) X(log, 1) X(log1p, 1)  \
  X(expm1, 1) X(tanh, 1) X(sigmoid, 1) X(erf, 1) X(sin, 1) X(cos, 1) X(floor, 1) X(ceil, 1)       \
  X(round, 1) X(trunc, 1) X(relu, 1) X(pow, 2) X(fma, 3) X(clamp, 3) X(where, 3) X(eq, 2)         \
  X(ne, 2) X(lt, 2) X(le, 2) X(gt, 2) X(ge, 2) X(logical_and, 2) X(logical_or, 2)                 \
  X(logical_not, 1) X(gelu_erf, 1) X(gelu_tanh, 1) X(silu, 1) X(hardswish, 1) X(hardsigmoid, 1)   \
  X(softplus, 3) X(leaky_relu, 2) X(elu, 2) X(mish, 1) X(bfloat16, 1)

enum class Op : std::int16_t {
#define X(name, operands) name,
  NIMBLE_OPCODES(X)
#undef X
};

enum class DType : std::int8_t { float32, boolean, int64, int32, bfloat16 };

inline constexpr int kMaxDims = 6;  // of strided operands
inline constexpr int kMaxOperands = 32, kMaxInstructions = 128, kMaxConstants = 32;
inline constexpr int kMaxRegisters = kMaxOperands + kMaxInstructions + kMaxConstants;
inline constexpr int kBuffer = 6144;  // floats; what a program keeps in the L1 cache
inline constexpr int kMaxBlock = 512;

struct Instruction {
  Op op;
  std::int16_t dst, a, b, c;
};

// Registers: inputs, outputs, those of the program, constants.
struct Program {
  int inputs, outputs, constants, registers, instructions;
  int first_constant;            // register
  int block;                     // floats of a register
  int known;                     // its number among those compiled ahead of time, or -1
  // Where in the buffer, in blocks. Inputs and outputs that are used in place leave theirs idle.
  std::int16_t place[kMaxRegisters];
  bool reads_late[kMaxOperands];  // by output: what may be its memory is read after it is written
  Instruction code[kMaxInstructions];
  float constant[kMaxConstants];
};

struct Extra {
  DType dtype;
  std::int64_t row, inner;  // strides
};

// What a kernel does to each row of its output. Register 0 is the row, 1... are the extras.
struct Epilogue {
  bool present = false;
  bool is_one_function = false;  // of the row itself, such as silu
  int extras = 0;
  int first_operand = 0;  // of the extras
  Extra extra[kMaxOperands] = {};
  Program program = {};
};

}  // namespace nimble
