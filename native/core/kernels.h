// Kernels of the core: single-threaded, allocate nothing, give PyTorch's results bit for bit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "replay_api.h"

namespace nimble {

struct Operand {
  std::size_t slot;
  std::size_t offset;  // in bytes
};

// The context of a native kernel's call. Operands are the output, then the inputs.
struct NativeCall {
  void* const* slots;
  std::array<Operand, 3> operands;
  std::array<std::int64_t, 1> ints;

  template <class T>
  T* operand(std::size_t i) const {
    return reinterpret_cast<T*>(static_cast<char*>(slots[operands[i].slot]) + operands[i].offset);
  }
};

struct NativeKernel {
  std::string name;
  KernelFn fn;
  std::size_t operands;
  std::size_t ints;
  std::size_t floats;
};

const std::vector<NativeKernel>& native_kernels();

// Throws std::invalid_argument with the names there are.
const NativeKernel& native_kernel(std::string_view name);

}  // namespace nimble
