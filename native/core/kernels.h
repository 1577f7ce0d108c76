// Native kernels: single-threaded functions that allocate nothing. See native/kernels/README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replay_api.h"

namespace nimble {

struct Operand {
  std::size_t slot;
  std::size_t offset;  // in bytes
};

// The context of a native kernel's call. Plain pointers: kernels compiled for one instruction set
// must not instantiate a function that the linker may then use everywhere.
struct NativeCall {
  void* const* slots;
  const Operand* operands;  // outputs, then inputs
  const void* plan;         // what the kernel's `parse` made of the ints and floats

  template <class T>
  T* operand(std::size_t i) const {
    return reinterpret_cast<T*>(static_cast<char*>(slots[operands[i].slot]) + operands[i].offset);
  }
};

// What a tape is given for a call.
struct NativeArguments {
  std::string_view kernel;
  std::span<const Operand> operands;
  std::span<const std::int64_t> ints;
  std::span<const double> floats;
};

struct NativeKernel {
  std::string name;
  KernelFn fn;
  // Throws std::invalid_argument if the kernel could not run with these.
  std::shared_ptr<const void> (*parse)(const NativeArguments& arguments);
};

const std::vector<NativeKernel>& native_kernels();

// Names of those that this machine has, the best last.
std::vector<std::string> instruction_sets();

// Throws std::invalid_argument with the names there are.
const NativeKernel& native_kernel(std::string_view name);

}  // namespace nimble
