#include "../pointwise.h"

#include "program.h"

namespace nimble::NIMBLE_ISA {
namespace {

struct Sweep {
  const PointwisePlan& plan;
  const Program& program;
  int operands;
  Registers& registers;
  char* at[kMaxOperands];          // of the outermost dimensions
  const char* gathered[kMaxOperands];  // what the input's register holds, to be gathered once
  std::int64_t gathered_count[kMaxOperands];

  int reg(int operand) const {  // operands begin with outputs, registers with inputs
    return operand < program.outputs ? program.inputs + operand : operand - program.outputs;
  }

  void tile(std::int64_t row, std::int64_t col, std::int64_t rows, std::int64_t cols) {
    const int d = plan.dims;
    bool scattered[kMaxOperands];
    for (int i = 0; i < operands; ++i) {
      const PointwiseOperand& operand = plan.operand[i];
      const std::int64_t down = operand.stride[d - 2], across = operand.stride[d - 1];
      char* from = at[i] + (row * down + col * across) * bytes(operand.dtype);
      bool in_place = operand.dtype == DType::float32 && (across == 1 || cols == 1) &&
                      (rows == 1 || down == cols);
      if (i < program.outputs) in_place &= program.known >= 0 || !program.reads_late[i];
      float*& reg_at = registers.at[reg(i)];
      scattered[i] = false;
      if (in_place) {
        reg_at = reinterpret_cast<float*>(from);
        continue;
      }
      reg_at = registers.buffer + program.place[reg(i)] * program.block;
      if (i < program.outputs) {
        scattered[i] = true;
      } else if (gathered[i] != from || gathered_count[i] < rows * cols) {
        gather(reg_at, from, operand.dtype, rows, cols, down, across);
        // Only what is repeated row by row is worth remembering; the rest changes with every tile,
        // or is written by the program.
        const bool repeats = down == 0 && (across == 0 || cols == plan.size[d - 1]);
        gathered[i] = repeats ? from : nullptr;
        gathered_count[i] = rows * cols;
      }
    }
    run(program, registers.at, rows * cols);
    for (int i = 0; i < program.outputs; ++i) {
      if (!scattered[i]) continue;
      const PointwiseOperand& operand = plan.operand[i];
      const std::int64_t down = operand.stride[d - 2], across = operand.stride[d - 1];
      char* to = at[i] + (row * down + col * across) * bytes(operand.dtype);
      scatter(to, registers.at[reg(i)], operand.dtype, rows, cols, down, across);
    }
  }

  void plane() {
    const std::int64_t rows = plan.size[plan.dims - 2], cols = plan.size[plan.dims - 1];
    const std::int64_t block = program.block;
    if (cols >= block) {
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < cols; c += block) tile(r, c, 1, least(block, cols - c));
      }
      return;
    }
    const std::int64_t height = block / cols;
    for (std::int64_t r = 0; r < rows; r += height) tile(r, 0, least(height, rows - r), cols);
  }

  void move(int dim, std::int64_t steps) {
    for (int o = 0; o < operands; ++o) {
      at[o] += steps * plan.operand[o].stride[dim] * bytes(plan.operand[o].dtype);
    }
  }

  void all() {
    std::int64_t index[kMaxDims] = {};
    for (int dim = 0; dim >= 0;) {
      plane();
      for (dim = plan.dims - 3; dim >= 0; --dim) {
        move(dim, 1);
        if (++index[dim] < plan.size[dim]) break;
        move(dim, -plan.size[dim]);
        index[dim] = 0;
      }
    }
  }
};

}  // namespace

void pointwise(void* context) {
  const auto& call = *static_cast<const NativeCall*>(context);
  const auto& plan = *static_cast<const PointwisePlan*>(call.plan);
  if (plan.empty) return;
  Registers registers;
  const int operands = plan.program.outputs + plan.program.inputs;
  Sweep sweep{plan, plan.program, operands, registers, {}, {}, {}};
  for (int i = 0; i < sweep.operands; ++i) {
    sweep.at[i] = call.operand<char>(static_cast<std::size_t>(i));
    sweep.gathered[i] = nullptr;
  }
  const std::int64_t rows = plan.size[plan.dims - 2], cols = plan.size[plan.dims - 1];
  const std::int64_t widest = cols >= plan.program.block ? plan.program.block : rows * cols;
  place(plan.program, registers, least<std::int64_t>(widest, plan.program.block));
  sweep.all();
}

}  // namespace nimble::NIMBLE_ISA
