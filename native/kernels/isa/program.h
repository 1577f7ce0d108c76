#pragma once

#include "../../core/kernels.h"
#include "../program.h"
#include "vec.h"

namespace nimble::NIMBLE_ISA {

// Where the registers of a program are while it runs.
struct Registers {
  alignas(64) float buffer[kBuffer];
  float* at[kMaxRegisters];
};

// Points every register to its place in the buffer, and fills the constants up to `count` <= block.
void place(const Program& program, Registers& registers, std::int64_t count);

void run(const Program& program, float* const* registers, std::int64_t count);

// One that is compiled ahead of time: all its instructions on eight elements, then on the next.
void run_known(const Program& program, float* const* registers, std::int64_t count);

// `rows` x `cols` elements at these strides, to and from floats without gaps.
void gather(float* out, const char* in, DType dtype, std::int64_t rows, std::int64_t cols,
            std::int64_t row, std::int64_t inner);
void scatter(char* out, const float* in, DType dtype, std::int64_t rows, std::int64_t cols,
             std::int64_t row, std::int64_t inner);

// Runs an epilogue in place on columns [column, column + count) of row number `number`.
void finish(const Epilogue& epilogue, const NativeCall& call, float* row, std::int64_t number,
            std::int64_t column, std::int64_t count);

// A function of `count` elements of each of some rows, in place; null if the epilogue is more than
// that, or nothing.
using Activation = void (*)(float* row, std::int64_t step, std::int64_t rows, std::int64_t count);
Activation activation_of(const Epilogue& epilogue);

// The function that convolutions apply while their sums are in registers.
NIMBLE_INLINE bool is_silu(const Epilogue& epilogue) {
  return epilogue.present && epilogue.is_one_function && epilogue.program.code[0].op == Op::silu;
}

NIMBLE_INLINE std::int64_t bytes(DType dtype) {
  switch (dtype) {
    case DType::boolean: return 1;
    case DType::bfloat16: return 2;
    case DType::int64: return 8;
    default: return 4;
  }
}

}  // namespace nimble::NIMBLE_ISA
