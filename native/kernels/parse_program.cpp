#include "parse_program.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "known.h"

namespace nimble {
namespace {

constexpr struct {
  const char* name;
  int operands;
} kOps[] = {
#define X(name, operands) {#name, operands},
    NIMBLE_OPCODES(X)
#undef X
};

std::int16_t& operand(Instruction& instruction, int i) {
  return i == 0 ? instruction.a : i == 1 ? instruction.b : instruction.c;
}

Instruction read_instruction(Reader& reader) {
  Instruction read{};
  const auto last = static_cast<std::int64_t>(std::size(kOps)) - 1;
  read.op = static_cast<Op>(reader.between("opcode", 0, last));
  const std::int64_t most = kMaxOperands + kMaxInstructions - 1;
  read.dst = static_cast<std::int16_t>(reader.between("destination", 0, most));
  const int operands = kOps[static_cast<int>(read.op)].operands;
  for (int i = 0; i < 3; ++i) {
    if (i < operands) {
      const std::int64_t given = reader.between("register", -kMaxConstants, most);
      operand(read, i) = static_cast<std::int16_t>(given);
    } else {
      reader.any("unused register");
      operand(read, i) = operand(read, 0);
    }
  }
  return read;
}

// Gives every register a place in the buffer, that of one whose last use is over if possible.
void place_registers(Program& program) {
  const int first_own = program.inputs + program.outputs;
  std::vector<int> last_use(static_cast<std::size_t>(program.registers), -1);
  for (int i = 0; i < program.instructions; ++i) {
    const Instruction& step = program.code[i];
    for (const int r : {step.dst, step.a, step.b, step.c}) {
      last_use[static_cast<std::size_t>(r)] = i;
    }
  }
  int places = 0;
  for (int r = 0; r < program.registers; ++r) {
    const bool own = r >= first_own && r < program.first_constant;
    program.place[r] = static_cast<std::int16_t>(own ? -1 : places++);
  }
  std::vector<std::int16_t> free;
  for (int i = 0; i < program.instructions; ++i) {
    const Instruction& step = program.code[i];
    const auto is_own = [&](int r) { return r >= first_own && r < program.first_constant; };
    std::vector<int> over;
    for (const int r : {step.a, step.b, step.c}) {
      if (!is_own(r) || r == step.dst) continue;
      if (last_use[static_cast<std::size_t>(r)] == i) over.push_back(r);
    }
    std::sort(over.begin(), over.end());
    over.erase(std::unique(over.begin(), over.end()), over.end());
    for (const int r : over) free.push_back(program.place[r]);
    if (!is_own(step.dst) || program.place[step.dst] >= 0) continue;
    if (free.empty()) free.push_back(static_cast<std::int16_t>(places++));
    program.place[step.dst] = free.back();
    free.pop_back();
  }
  program.block = std::clamp(kBuffer / std::max(places, 1) / 16 * 16, 16, kMaxBlock);
}

}  // namespace

std::map<std::string, int> opcodes() {
  std::map<std::string, int> numbers;
  for (std::size_t i = 0; i < std::size(kOps); ++i) numbers[kOps[i].name] = static_cast<int>(i);
  return numbers;
}

DType read_dtype(Reader& reader) { return static_cast<DType>(reader.between("dtype", 0, 4)); }

Program read_program(Reader& reader, int inputs, int outputs, std::size_t first_float,
                     bool (*may_alias)(const Reader& reader, int output, int input)) {
  Program program{};
  program.inputs = inputs;
  program.outputs = outputs;
  const int operands = inputs + outputs;
  program.instructions = static_cast<int>(reader.between("instructions", 1, kMaxInstructions));
  std::vector<bool> written(kMaxOperands + kMaxInstructions);
  std::fill_n(written.begin(), inputs, true);
  int registers = operands;
  for (int i = 0; i < program.instructions; ++i) {
    Instruction& step = program.code[i] = read_instruction(reader);
    const std::string here = "instruction " + std::to_string(i);
    for (int o = 0; o < kOps[static_cast<int>(step.op)].operands; ++o) {
      const int r = operand(step, o);
      if (r >= 0 && !written[static_cast<std::size_t>(r)]) {
        reader.refuse("reads register " + std::to_string(r) + " in " + here +
                      ", before it is written");
      }
      if (r < 0) program.constants = std::max(program.constants, -r);
    }
    if (step.dst < inputs) {
      reader.refuse("writes register " + std::to_string(step.dst) + " in " + here + ", an input");
    }
    written[static_cast<std::size_t>(step.dst)] = true;
    registers = std::max(registers, step.dst + 1);
  }
  for (int o = 0; o < outputs; ++o) {
    if (!written[static_cast<std::size_t>(inputs + o)]) {
      reader.refuse("never writes output " + std::to_string(o));
    }
  }
  program.first_constant = registers;
  program.registers = registers + program.constants;
  for (int i = 0; i < program.constants; ++i) {
    program.constant[i] = reader.number(first_float + static_cast<std::size_t>(i));
  }
  for (int i = 0; i < program.instructions; ++i) {
    for (int o = 0; o < 3; ++o) {
      std::int16_t& r = operand(program.code[i], o);
      if (r < 0) r = static_cast<std::int16_t>(program.first_constant - r - 1);
    }
  }
  for (int o = 0; o < outputs; ++o) {
    bool begun = false;
    for (int i = 0; i < program.instructions; ++i) {
      for (int k = 0; k < 3; ++k) {
        const int r = operand(program.code[i], k);
        if (begun && r < inputs && may_alias(reader, o, r)) program.reads_late[o] = true;
      }
      begun |= program.code[i].dst == inputs + o;
    }
  }
  place_registers(program);
  program.known = known_program(program);
  return program;
}

bool is_known_program(int inputs, int outputs, const std::vector<std::int64_t>& ints,
                      const std::vector<double>& floats) {
  const NativeArguments arguments{"a program", {}, ints, floats};
  Reader reader(arguments);
  return read_program(reader, inputs, outputs, 0,
                      [](const Reader&, int, int) { return false; })
             .known >= 0;
}

Epilogue read_epilogue(Reader& reader, std::size_t operands, std::size_t floats) {
  Epilogue epilogue;
  if (!reader.at_end()) {
    epilogue.present = true;
    epilogue.first_operand = static_cast<int>(operands);
    epilogue.extras = static_cast<int>(reader.between("epilogue inputs", 0, kMaxOperands - 2));
    for (int i = 0; i < epilogue.extras; ++i) {
      Extra& extra = epilogue.extra[i];
      extra.dtype = read_dtype(reader);
      extra.row = reader.stride("row stride");
      extra.inner = reader.stride("inner stride");
    }
    // The row is where the result goes; an extra may be there too.
    epilogue.program = read_program(reader, 1 + epilogue.extras, 1, floats,
                                    [](const Reader&, int, int) { return true; });
    const Program& program = epilogue.program;
    epilogue.is_one_function =
        program.instructions == 1 && epilogue.extras == 0 && program.constants == 0;
    operands += static_cast<std::size_t>(epilogue.extras);
    floats += static_cast<std::size_t>(epilogue.program.constants);
  }
  reader.end(operands, floats);
  return epilogue;
}

}  // namespace nimble
