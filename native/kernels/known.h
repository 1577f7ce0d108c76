// Programs that training steps spend their time in, compiled ahead of time: their registers are the
// processor's. Any other program is interpreted, block by block.
#pragma once

#include <initializer_list>
#include <iterator>

#include "program.h"

namespace nimble {

inline constexpr int kMostKnown = 16;  // instructions

struct Known {
  int inputs = 0, outputs = 0, instructions = 0, constants = 0;
  Instruction code[kMostKnown] = {};  // constants are -1, -2...

  // Registers are numbered as they are told: inputs first, then every instruction's.
  struct Step {
    Op op;
    int a, b = kSame, c = kSame;
  };
  static constexpr int kSame = 1000;  // an operand that there is not is the first

  constexpr Known(int inputs_, std::initializer_list<int> results, std::initializer_list<Step> steps)
      : inputs(inputs_), outputs(static_cast<int>(results.size())) {
    std::int16_t place[kMaxOperands + kMostKnown] = {};
    int own = inputs + outputs;
    for (int r = 0; r < inputs; ++r) place[r] = static_cast<std::int16_t>(r);
    for (const Step& step : steps) {
      const int told = inputs + instructions;
      int to = -1, o = 0;
      for (const int result : results) {
        if (result == told) to = inputs + o;
        ++o;
      }
      place[told] = static_cast<std::int16_t>(to < 0 ? own++ : to);
      const auto operand = [&](int r) {
        if (r == kSame) r = step.a;
        if (-r > constants) constants = -r;
        return r < 0 ? static_cast<std::int16_t>(r) : place[r];
      };
      code[instructions++] = {step.op, place[told], operand(step.a), operand(step.b),
                              operand(step.c)};
    }
  }
};

// clang-format off
inline constexpr Known kKnown[] = {
    // Adam and AdamW: the new mean, mean square and parameter. Where gradients are clipped, that is the first thing.
    {10, {12, 16, 22}, {{Op::sub, 0, 1}, {Op::mul, 2, 10}, {Op::add, 1, 11}, {Op::mul, 3, 4}, {Op::mul, 0, 0},
        {Op::mul, 5, 14}, {Op::add, 13, 15}, {Op::mul, 6, 12}, {Op::sqrt, 16}, {Op::div, 18, 7}, {Op::add, 19, 8},
        {Op::div, 17, 20}, {Op::sub, 9, 21}}},
    {12, {16, 20, 26}, {{Op::mul, 0, 1}, {Op::mul, 2, 3}, {Op::sub, 12, 4}, {Op::mul, 5, 14}, {Op::add, 4, 15},
        {Op::mul, 6, 7}, {Op::mul, 12, 12}, {Op::mul, 8, 18}, {Op::add, 17, 19}, {Op::mul, 9, 16}, {Op::sqrt, 20},
        {Op::div, 22, 10}, {Op::add, 23, 11}, {Op::div, 21, 24}, {Op::sub, 13, 25}}},
    {11, {14, 18, 24}, {{Op::mul, 0, 1}, {Op::sub, 2, 3}, {Op::mul, 4, 12}, {Op::add, 3, 13}, {Op::mul, 5, 6},
        {Op::mul, 2, 2}, {Op::mul, 7, 16}, {Op::add, 15, 17}, {Op::mul, 8, 14}, {Op::sqrt, 18}, {Op::div, 20, 9},
        {Op::add, 21, 10}, {Op::div, 19, 22}, {Op::sub, 11, 23}}},
    // SGD with momentum, plain, clipped, and with decay
    {6, {8, 10}, {{Op::mul, 0, 1}, {Op::mul, 2, 3}, {Op::add, 6, 7}, {Op::mul, 4, 8}, {Op::sub, 5, 9}}},
    {7, {10, 12}, {{Op::mul, 0, 1}, {Op::mul, 2, 3}, {Op::mul, 4, 7}, {Op::add, 8, 9}, {Op::mul, 5, 10}, {Op::sub, 6, 11}}},
    {7, {11, 13}, {{Op::mul, 0, 1}, {Op::add, 2, 7}, {Op::mul, 3, 4}, {Op::mul, 5, 8}, {Op::add, 9, 10}, {Op::mul, 6, 11},
        {Op::sub, 1, 12}}},
    {8, {13, 15}, {{Op::mul, 0, 1}, {Op::mul, 2, 3}, {Op::add, 8, 9}, {Op::mul, 4, 5}, {Op::mul, 6, 10}, {Op::add, 11, 12},
        {Op::mul, 7, 13}, {Op::sub, 3, 14}}},
    {7, {11, 15}, {{Op::mul, 0, 1}, {Op::add, 2, 7}, {Op::mul, 3, 4}, {Op::mul, 5, 8}, {Op::add, 9, 10}, {Op::mul, 3, 11},
        {Op::add, 8, 12}, {Op::mul, 6, 13}, {Op::sub, 1, 14}}},
    // batch norm, its gradient, and what follows it
    {3, {4}, {{Op::mul, 0, 1}, {Op::add, 3, 2}}},
    {5, {8}, {{Op::mul, 0, 1}, {Op::add, 5, 2}, {Op::add, 6, 3}, {Op::mul, 7, 4}}},
    {3, {5, 8}, {{Op::mul, 0, 1}, {Op::add, 3, 2}, {Op::clamp, 4, -1, -2}, {Op::le, 4, -1}, {Op::ge, 4, -2},
        {Op::logical_or, 6, 7}}},
    {3, {5, 6}, {{Op::mul, 0, 1}, {Op::add, 3, 2}, {Op::relu, 4}, {Op::le, 5, -1}}},
    {4, {7, 8}, {{Op::mul, 0, 1}, {Op::add, 4, 2}, {Op::add, 5, 3}, {Op::relu, 6}, {Op::le, 7, -1}}},
    {6, {11, 12}, {{Op::mul, 0, 1}, {Op::add, 6, 2}, {Op::mul, 3, 4}, {Op::add, 8, 5}, {Op::add, 7, 9}, {Op::relu, 10},
        {Op::le, 11, -1}}},
    {4, {5}, {{Op::add, 0, 1}, {Op::where, 2, 3, 4}}},
    {3, {5}, {{Op::mul, 0, 1}, {Op::add, 3, 2}, {Op::silu, 4}}},
    // the gradient of SiLU after a batch norm; where a gate follows, with the gate, and perhaps the mean that it was made from
    {4, {11}, {{Op::mul, 1, 2}, {Op::add, 4, 3}, {Op::sigmoid, 5}, {Op::sub, -1, 6}, {Op::mul, 5, 7}, {Op::add, 8, -1},
        {Op::mul, 0, 6}, {Op::mul, 10, 9}}},
    {6, {15}, {{Op::mul, 3, 4}, {Op::add, 6, 5}, {Op::sigmoid, 7}, {Op::sub, -1, 8}, {Op::mul, 7, 9}, {Op::add, 10, -1},
        {Op::mul, 0, 1}, {Op::add, 12, 2}, {Op::mul, 13, 8}, {Op::mul, 14, 11}}},
    {6, {16}, {{Op::mul, 3, 4}, {Op::add, 6, 5}, {Op::sigmoid, 7}, {Op::sub, -1, 8}, {Op::mul, 7, 9}, {Op::add, 10, -1},
        {Op::mul, 0, 1}, {Op::div, 2, -2}, {Op::add, 12, 13}, {Op::mul, 14, 8}, {Op::mul, 15, 11}}},
    // the gradient of GELU
    {2, {12}, {{Op::mul, 0, -1}, {Op::erf, 2}, {Op::add, 3, -2}, {Op::mul, 4, -3}, {Op::mul, 0, 0}, {Op::mul, 6, -4},
        {Op::exp, 7}, {Op::mul, 8, -5}, {Op::mul, 0, 9}, {Op::add, 5, 10}, {Op::mul, 1, 11}}},
};
// clang-format on
inline constexpr int kKnownPrograms = static_cast<int>(std::size(kKnown));

// Which of them a program is, or -1.
inline int known_program(const Program& program) {
  const auto same = [&](std::int16_t told, std::int16_t found) {
    return told < 0 ? found == program.first_constant - told - 1 : found == told;
  };
  for (int k = 0; k < kKnownPrograms; ++k) {
    const Known& known = kKnown[k];
    bool fits = known.inputs == program.inputs && known.outputs == program.outputs &&
                known.instructions == program.instructions && known.constants == program.constants;
    for (int i = 0; fits && i < known.instructions; ++i) {
      const Instruction &told = known.code[i], &found = program.code[i];
      fits = told.op == found.op && told.dst == found.dst && same(told.a, found.a) &&
             same(told.b, found.b) && same(told.c, found.c);
    }
    if (fits) return k;
  }
  return -1;
}

}  // namespace nimble
