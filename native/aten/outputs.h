// The tensors a replay returns: made anew, passed through, or kept by the plan.
#pragma once

#include <cstddef>
#include <utility>
#include <variant>
#include <vector>

#include "memory.h"
#include "python.h"

namespace nimble::aten {

struct Strided {
  Ints shape;
  Ints strides;
  std::size_t offset;
};

// A tensor of the memory of `slot`, which is allocated at every call.
struct Fresh {
  std::size_t slot;
  at::ScalarType dtype;
  Strided strided;
  std::size_t place = 0;  // among the slots allocated at every call
};
// The tensor passed in, itself or seen through other strides.
struct Passed {
  std::size_t index;
};
struct PassedView {
  std::size_t index;
  Strided strided;
};
// The tensor given to Table.memory, itself or seen through other strides.
struct Kept {
  std::size_t slot;
};
struct KeptView {
  std::size_t slot;
  Strided strided;
};

using Output = std::variant<Fresh, Passed, PassedView, Kept, KeptView>;

// Throws ValueError where the tuple is none of those in _aten.pyi.
Output parse_output(nb::tuple spec);

// Memory for the outputs of one call, one storage for each slot.
class FreshMemory {
 public:
  void reserve(std::size_t slots) { memories_.reserve(slots); }
  void allocate(std::size_t nbytes);
  void* address(std::size_t place) const { return memories_[place].storage->mutable_data(); }
  // All tensors of one slot share one version counter, as views of one another do.
  at::Tensor tensor(const Fresh& output);
  // Counts as an edit of the tensors handed out. False where one of them was given other memory or
  // another shape since.
  bool write_again();
  bool overlaps(const Range& range) const;

 private:
  struct Memory {
    c10::intrusive_ptr<c10::StorageImpl> storage;
    std::size_t nbytes;
    std::vector<std::pair<at::Tensor, Strided>> made;
  };
  std::vector<Memory> memories_;
};

nb::object hand_out(const Output& output, const std::vector<nb::object>& inputs,
                    const std::vector<Slot>& slots, FreshMemory& fresh);

}  // namespace nimble::aten
