#include "program.h"

#include "../known.h"
#include "operations.h"

namespace nimble::NIMBLE_ISA {
namespace {

// Outputs may be inputs, so each element is read before it is written.
template <int kOperands, class F>
NIMBLE_INLINE void map(float* out, const float* a, const float* b, const float* c,
                       std::int64_t count, F f) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Floats x = load(a + i);
    store(out + i, f(x, kOperands > 1 ? load(b + i) : x, kOperands > 2 ? load(c + i) : x));
  }
  const std::int64_t left = count - i;
  if (left == 0) return;
  const Floats x = load(a + i, left);
  store(out + i,
        f(x, kOperands > 1 ? load(b + i, left) : x, kOperands > 2 ? load(c + i, left) : x), left);
}

void step(const Instruction& instruction, float* const* at, std::int64_t n) {
  float* d = at[instruction.dst];
  const float* a = at[instruction.a];
  const float* b = at[instruction.b];
  const float* c = at[instruction.c];
  switch (instruction.op) {
#define X(name, operands)                                                          \
  case Op::name:                                                                   \
    return map<operands>(d, a, b, c, n, [](Floats x, Floats y, Floats z)                       \
                                            __attribute__((always_inline)) { \
                                              return apply<Op::name>(x, y, z);     \
                                            });
    NIMBLE_OPCODES(X)
#undef X
  }
}

// Several at once, since each is a long chain.
template <Floats (*kOf)(Floats)>
void activate(float* row, std::int64_t step, std::int64_t rows, std::int64_t count) {
  if (count == kLanes && rows % 2 == 0) {
    for (std::int64_t r = 0; r < rows; r += 2, row += 2 * step) {
      const Floats a = kOf(load(row)), b = kOf(load(row + step));
      store(row, a);
      store(row + step, b);
    }
  } else if (count == 2 * kLanes) {
    for (std::int64_t r = 0; r < rows; ++r, row += step) {
      const Floats a = kOf(load(row)), b = kOf(load(row + kLanes));
      store(row, a);
      store(row + kLanes, b);
    }
  } else {
    for (std::int64_t r = 0; r < rows; ++r, row += step) {
      map<1>(row, row, row, row, count,
             [](Floats x, Floats, Floats) __attribute__((always_inline)) { return kOf(x); });
    }
  }
}
Floats hardswish_of(Floats x) { return x * hardsigmoid_of(x); }

// The upper half of a float.
struct Bfloat16 {
  std::uint16_t bits;
  NIMBLE_INLINE_MEMBER explicit operator float() const {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
  }
};

template <class T>
NIMBLE_INLINE void gather_rows(float* out, const T* in, std::int64_t rows, std::int64_t cols,
                               std::int64_t row, std::int64_t inner) {
  for (std::int64_t r = 0; r < rows; ++r, in += row, out += cols) {
    if (inner == 1) {
      for (std::int64_t c = 0; c < cols; ++c) out[c] = static_cast<float>(in[c]);
    } else if (inner == 0) {
      const auto value = static_cast<float>(*in);
      for (std::int64_t c = 0; c < cols; ++c) out[c] = value;
    } else {
      for (std::int64_t c = 0; c < cols; ++c) out[c] = static_cast<float>(in[c * inner]);
    }
  }
}

template <class T>
NIMBLE_INLINE T to(float value) {
  if constexpr (sizeof(T) == 1) {
    return value != 0.0f;
  } else if constexpr (sizeof(T) == 2) {
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t near = value != value ? 0x7fc00000 : bits + 0x7fff + (bits >> 16 & 1);
    return {static_cast<std::uint16_t>(near >> 16)};
  } else if constexpr (static_cast<T>(0.5f) == 0) {
    // Beyond the range a conversion is undefined in C++; the processor gives the least integer.
    constexpr float limit = sizeof(T) == 4 ? 2147483648.0f : 9223372036854775808.0f;
    const bool fits = value >= -limit && value < limit;
    return fits ? static_cast<T>(value) : static_cast<T>(T{1} << (8 * sizeof(T) - 1));
  } else {
    return value;
  }
}

template <class T>
NIMBLE_INLINE void scatter_rows(T* out, const float* in, std::int64_t rows, std::int64_t cols,
                                std::int64_t row, std::int64_t inner) {
  for (std::int64_t r = 0; r < rows; ++r, out += row, in += cols) {
    if (inner == 1) {
      for (std::int64_t c = 0; c < cols; ++c) out[c] = to<T>(in[c]);
    } else {
      for (std::int64_t c = 0; c < cols; ++c) out[c * inner] = to<T>(in[c]);
    }
  }
}

}  // namespace

void run(const Program& program, float* const* registers, std::int64_t count) {
  if (program.known >= 0) return run_known(program, registers, count);
  for (int i = 0; i < program.instructions; ++i) step(program.code[i], registers, count);
}

void place(const Program& program, Registers& registers, std::int64_t count) {
  for (int r = 0; r < program.registers; ++r) {
    registers.at[r] = registers.buffer + program.place[r] * program.block;
  }
  for (int i = 0; i < program.constants; ++i) {
    float* constant = registers.at[program.first_constant + i];
    for (std::int64_t k = 0; k < count; ++k) constant[k] = program.constant[i];
  }
}

void gather(float* out, const char* in, DType dtype, std::int64_t rows, std::int64_t cols,
            std::int64_t row, std::int64_t inner) {
  switch (dtype) {
    case DType::float32:
      return gather_rows(out, reinterpret_cast<const float*>(in), rows, cols, row, inner);
    case DType::boolean:
      return gather_rows(out, reinterpret_cast<const std::uint8_t*>(in), rows, cols, row, inner);
    case DType::int64:
      return gather_rows(out, reinterpret_cast<const std::int64_t*>(in), rows, cols, row, inner);
    case DType::int32:
      return gather_rows(out, reinterpret_cast<const std::int32_t*>(in), rows, cols, row, inner);
    case DType::bfloat16:
      return gather_rows(out, reinterpret_cast<const Bfloat16*>(in), rows, cols, row, inner);
  }
}

void scatter(char* out, const float* in, DType dtype, std::int64_t rows, std::int64_t cols,
             std::int64_t row, std::int64_t inner) {
  switch (dtype) {
    case DType::float32:
      return scatter_rows(reinterpret_cast<float*>(out), in, rows, cols, row, inner);
    case DType::boolean:
      return scatter_rows(reinterpret_cast<std::uint8_t*>(out), in, rows, cols, row, inner);
    case DType::int64:
      return scatter_rows(reinterpret_cast<std::int64_t*>(out), in, rows, cols, row, inner);
    case DType::int32:
      return scatter_rows(reinterpret_cast<std::int32_t*>(out), in, rows, cols, row, inner);
    case DType::bfloat16:
      return scatter_rows(reinterpret_cast<Bfloat16*>(out), in, rows, cols, row, inner);
  }
}

Activation activation_of(const Epilogue& epilogue) {
  if (!epilogue.present || !epilogue.is_one_function) return nullptr;
  switch (epilogue.program.code[0].op) {
    case Op::silu: return activate<silu_of>;
    case Op::sigmoid: return activate<sigmoid_of>;
    case Op::gelu_erf: return activate<gelu_erf_of>;
    case Op::gelu_tanh: return activate<gelu_tanh_of>;
    case Op::hardswish: return activate<hardswish_of>;
    case Op::hardsigmoid: return activate<hardsigmoid_of>;
    case Op::tanh: return activate<tanh_of>;
    default: return nullptr;
  }
}

void finish(const Epilogue& epilogue, const NativeCall& call, float* row, std::int64_t number,
            std::int64_t column, std::int64_t count) {
  const Program& program = epilogue.program;
  if (epilogue.is_one_function) {
    float* const in_place[2] = {row, row};
    return step(program.code[0], in_place, count);
  }
  Registers registers;
  place(program, registers, least<std::int64_t>(count, program.block));
  for (std::int64_t done = 0; done < count; done += program.block) {
    const std::int64_t n = least<std::int64_t>(count - done, program.block);
    float* out = registers.at[1 + epilogue.extras];
    registers.at[0] = row + done;
    for (int i = 0; i < epilogue.extras; ++i) {
      const Extra& extra = epilogue.extra[i];
      const std::int64_t at = number * extra.row + (column + done) * extra.inner;
      char* from = call.operand<char>(static_cast<std::size_t>(epilogue.first_operand + i)) +
                   at * bytes(extra.dtype);
      if (extra.dtype == DType::float32 && extra.inner == 1) {
        registers.at[1 + i] = reinterpret_cast<float*>(from);
      } else {
        registers.at[1 + i] = registers.buffer + program.place[1 + i] * program.block;
        gather(registers.at[1 + i], from, extra.dtype, 1, n, 0, extra.inner);
      }
    }
    const bool in_place = !program.reads_late[0];
    if (in_place) registers.at[1 + epilogue.extras] = row + done;
    run(program, registers.at, n);
    if (!in_place) scatter(reinterpret_cast<char*>(row + done), out, DType::float32, 1, n, 0, 1);
  }
}

}  // namespace nimble::NIMBLE_ISA
