#include "../known.h"

#include <utility>

#include "operations.h"
#include "program.h"

namespace nimble::NIMBLE_ISA {
namespace {

template <int kProgram>
struct Compiled {
  static constexpr const Known& kSteps = kKnown[kProgram];
  static constexpr int kRegisters = kMaxOperands + kMostKnown;

  const Program& program;
  float* const* at;
  Floats r[kRegisters];

  template <std::int16_t kFrom>
  NIMBLE_INLINE_MEMBER Floats operand() const {
    if constexpr (kFrom < 0) {
      return splat(program.constant[-1 - kFrom]);
    } else {
      return r[kFrom];
    }
  }

  template <std::size_t kStep>
  NIMBLE_INLINE_MEMBER void step() {
    constexpr Instruction kIt = kSteps.code[kStep];
    r[kIt.dst] = apply<kIt.op>(operand<kIt.a>(), operand<kIt.b>(), operand<kIt.c>());
  }

  template <class Load, class Store, std::size_t... kInput, std::size_t... kOutput,
            std::size_t... kStep>
  NIMBLE_INLINE_MEMBER void all(Load load_one, Store store_one, std::index_sequence<kInput...>,
                                std::index_sequence<kOutput...>, std::index_sequence<kStep...>) {
    ((r[kInput] = load_one(at[kInput])), ...);
    (step<kStep>(), ...);
    (store_one(at[kSteps.inputs + kOutput], r[kSteps.inputs + kOutput]), ...);
  }

  template <class Load, class Store>
  NIMBLE_INLINE_MEMBER void on(Load load_one, Store store_one) {
    all(load_one, store_one, std::make_index_sequence<static_cast<std::size_t>(kSteps.inputs)>(),
        std::make_index_sequence<static_cast<std::size_t>(kSteps.outputs)>(),
        std::make_index_sequence<static_cast<std::size_t>(kSteps.instructions)>());
  }
};

template <int kProgram>
[[gnu::noinline]] void compiled(const Program& program, float* const* at, std::int64_t count) {
  Compiled<kProgram> it{program, at, {}};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    it.on([i](const float* p) __attribute__((always_inline)) { return load(p + i); },
          [i](float* p, Floats x) __attribute__((always_inline)) { store(p + i, x); });
  }
  const std::int64_t left = count - i;
  if (left == 0) return;
  it.on([=](const float* p) __attribute__((always_inline)) { return load(p + i, left); },
        [=](float* p, Floats x) __attribute__((always_inline)) { store(p + i, x, left); });
}

using Run = void (*)(const Program&, float* const*, std::int64_t);

template <class Numbers>
struct Table;
template <std::size_t... kProgram>
struct Table<std::index_sequence<kProgram...>> {
  static constexpr Run kRuns[] = {compiled<static_cast<int>(kProgram)>...};
};

}  // namespace

void run_known(const Program& program, float* const* registers, std::int64_t count) {
  Table<std::make_index_sequence<kKnownPrograms>>::kRuns[program.known](program, registers, count);
}

}  // namespace nimble::NIMBLE_ISA
