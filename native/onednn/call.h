// A step of a tape that executes a primitive.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "primitive.h"
#include "tape.h"

namespace nimble::onednn {

// The context of the call. Operands are in the order of the primitive's roles.
class PrimitiveCall {
 public:
  PrimitiveCall(Primitive primitive, void* const* slots, const std::vector<Operand>& operands);

  // A KernelFn.
  static void run(void* call);

 private:
  struct Place {
    void* const* slot;
    std::size_t offset;
    void* seen;  // the address that its memory object has
  };

  Primitive primitive_;
  StreamHandle stream_;
  std::vector<Place> places_;
  std::vector<Memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

// Appends a task to a tape, which keeps the primitive.
void append(Tape& tape, std::int64_t stream, std::int64_t task, const Primitive& primitive,
            const std::vector<std::pair<std::int64_t, std::int64_t>>& operands);

}  // namespace nimble::onednn
