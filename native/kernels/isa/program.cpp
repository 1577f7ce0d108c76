#include "program.h"

#include "math.h"

namespace nimble::NIMBLE_ISA {
namespace {

// Outputs may be inputs, so each element is read before it is written.
template <class F>
NIMBLE_INLINE void map1(float* out, const float* a, std::int64_t count, F f) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) store(out + i, f(load(a + i)));
  if (i < count) store(out + i, f(load(a + i, count - i)), count - i);
}

template <class F>
NIMBLE_INLINE void map2(float* out, const float* a, const float* b, std::int64_t count, F f) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) store(out + i, f(load(a + i), load(b + i)));
  const std::int64_t left = count - i;
  if (left > 0) store(out + i, f(load(a + i, left), load(b + i, left)), left);
}

template <class F>
NIMBLE_INLINE void map3(float* out, const float* a, const float* b, const float* c,
                        std::int64_t count, F f) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) store(out + i, f(load(a + i), load(b + i), load(c + i)));
  const std::int64_t left = count - i;
  if (left > 0) {
    store(out + i, f(load(a + i, left), load(b + i, left), load(c + i, left)), left);
  }
}

NIMBLE_INLINE F8 one_if(I8 mask) { return select(mask, splat(1.0f), splat(0.0f)); }

void step(const Instruction& instruction, float* const* at, std::int64_t n) {
  float* d = at[instruction.dst];
  const float* a = at[instruction.a];
  const float* b = at[instruction.b];
  const float* c = at[instruction.c];
  const F8 zero = splat(0.0f), one = splat(1.0f);
  switch (instruction.op) {
#define UNARY(name, value) \
  case Op::name: return map1(d, a, n, [&](F8 x) __attribute__((always_inline)) { return value; });
#define BINARY(name, value) \
  case Op::name: \
    return map2(d, a, b, n, [&](F8 x, F8 y) __attribute__((always_inline)) { return value; });
#define TERNARY(name, value) \
  case Op::name: \
    return map3(d, a, b, c, n, \
                [&](F8 x, F8 y, F8 z) __attribute__((always_inline)) { return value; });
    UNARY(copy, x)
    BINARY(add, x + y)
    BINARY(sub, x - y)
    BINARY(mul, x * y)
    BINARY(div, x / y)
    BINARY(maximum, maximum(x, y))
    BINARY(minimum, minimum(x, y))
    UNARY(neg, -x)
    UNARY(abs, absolute(x))
    UNARY(sqrt, root(x))
    UNARY(rsqrt, one / root(x))
    UNARY(reciprocal, one / x)
    UNARY(square, x * x)
    UNARY(exp, exp8(x))
    UNARY(log, log8(x))
    UNARY(log1p, log1p_8(x))
    UNARY(expm1, expm1_8(x))
    UNARY(tanh, tanh8(x))
    UNARY(sigmoid, sigmoid8(x))
    UNARY(erf, erf8(x))
    UNARY(sin, sin8(x))
    UNARY(cos, cos8(x))
    UNARY(floor, floor8(x))
    UNARY(ceil, ceil8(x))
    UNARY(round, rounded(x))
    UNARY(trunc, trunc8(x))
    UNARY(relu, select(x < zero, zero, x))
    BINARY(pow, pow8(x, y))
    TERNARY(fma, fma(x, y, z))
    TERNARY(clamp, minimum(maximum(x, y), z))
    TERNARY(where, select(x != zero, y, z))
    BINARY(eq, one_if(x == y))
    BINARY(ne, one_if(x != y))
    BINARY(lt, one_if(x < y))
    BINARY(le, one_if(x <= y))
    BINARY(gt, one_if(x > y))
    BINARY(ge, one_if(x >= y))
    BINARY(logical_and, one_if((x != zero) & (y != zero)))
    BINARY(logical_or, one_if((x != zero) | (y != zero)))
    UNARY(logical_not, one_if(x == zero))
    UNARY(gelu_erf, gelu_erf8(x))
    UNARY(gelu_tanh, gelu_tanh8(x))
    UNARY(silu, silu8(x))
    UNARY(hardswish, x * hardsigmoid8(x))
    UNARY(hardsigmoid, hardsigmoid8(x))
    TERNARY(softplus, softplus8(x, y, z))
    BINARY(leaky_relu, select(x > zero, x, x * y))
    BINARY(elu, select(x > zero, x, y * expm1_8(x)))
    UNARY(mish, mish8(x))
  }
}

// Several at once, since each is a long chain.
template <F8 (*kOf)(F8)>
void activate(float* row, std::int64_t step, std::int64_t rows, std::int64_t count) {
  if (count == 8 && rows % 2 == 0) {
    for (std::int64_t r = 0; r < rows; r += 2, row += 2 * step) {
      const F8 a = kOf(load(row)), b = kOf(load(row + step));
      store(row, a);
      store(row + step, b);
    }
  } else if (count == 16) {
    for (std::int64_t r = 0; r < rows; ++r, row += step) {
      const F8 a = kOf(load(row)), b = kOf(load(row + 8));
      store(row, a);
      store(row + 8, b);
    }
  } else {
    for (std::int64_t r = 0; r < rows; ++r, row += step) {
      map1(row, row, count, [](F8 x) __attribute__((always_inline)) { return kOf(x); });
    }
  }
}
F8 hardswish8(F8 x) { return x * hardsigmoid8(x); }

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
  }
}

Activation activation_of(const Epilogue& epilogue) {
  if (!epilogue.present || !epilogue.is_one_function) return nullptr;
  switch (epilogue.program.code[0].op) {
    case Op::silu: return activate<silu8>;
    case Op::sigmoid: return activate<sigmoid8>;
    case Op::gelu_erf: return activate<gelu_erf8>;
    case Op::gelu_tanh: return activate<gelu_tanh8>;
    case Op::hardswish: return activate<hardswish8>;
    case Op::hardsigmoid: return activate<hardsigmoid8>;
    case Op::tanh: return activate<tanh8>;
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
