// The memories a plan's tensors stand on. The address of a slot can change between replays; its
// tensors follow.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace nimble::aten {

using Ints = std::vector<std::int64_t>;

// A strided CPU tensor with nothing around it: no subclass that dispatches to Python, no
// transform's wrapper, no fake, no lazy conjugation or negation.
bool is_plain(const at::Tensor& tensor);
// The same on any device.
bool is_plain_anywhere(const at::Tensor& tensor);

// Bytes from the first element to the end of the last; nullopt where that is beyond all memory.
std::optional<std::size_t> span(at::IntArrayRef shape, at::IntArrayRef strides,
                                std::size_t itemsize);
std::size_t span(const at::Tensor& tensor);

// Whether its storage holds so many bytes from its first element on: it may have been resized.
bool holds(const at::Tensor& tensor, std::size_t nbytes);

// As PyTorch counts an edit in place.
void bump_version(const at::Tensor& tensor);

struct Range {
  std::uintptr_t begin, end;
  bool overlaps(const Range& other) const {
    return begin < other.end && other.begin < end && begin != end && other.begin != other.end;
  }
};

// Memory that lives as long as the plan: a tensor and what keeps its bytes. The tensor alone would
// not: `tensor.data = other` swaps its storage.
struct Memory {
  Memory() = default;
  explicit Memory(const at::Tensor& tensor)
      : tensor(tensor), storage(tensor.storage()), address(tensor.mutable_data_ptr()) {}

  at::Tensor tensor;
  c10::Storage storage;
  void* address = nullptr;
};

class Slot {
 public:
  Slot() = default;
  explicit Slot(std::size_t nbytes) : defined_(true), nbytes_(nbytes) {}

  bool defined() const { return defined_; }
  std::size_t nbytes() const { return nbytes_; }
  void* address() const { return address_; }
  Range range() const;
  bool is_memory() const { return memory_.tensor.defined(); }
  const at::Tensor& tensor() const { return memory_.tensor; }

  // Leaves what the slot had before in `memory`, to be let go by whoever has the GIL.
  void keep(Memory& memory);
  // The caller's memory, for one replay; null afterwards.
  void bind(void* address);

  // Throws ValueError where such a tensor does not fit in this memory.
  void check(at::ScalarType dtype, const Ints& shape, const Ints& strides,
             std::size_t offset) const;
  // A tensor on this memory.
  at::Tensor value(at::ScalarType dtype, const Ints& shape, const Ints& strides,
                   std::size_t offset);

 private:
  // Every value has a storage that ends where it ends: an op that resizes a result then fails,
  // where it would otherwise write over its neighbour.
  struct Part {
    c10::intrusive_ptr<c10::StorageImpl> storage;
    std::size_t offset;
  };

  bool defined_ = false;
  std::size_t nbytes_ = 0;
  std::vector<Part> parts_;
  void* address_ = nullptr;
  Memory memory_;
};

// A tensor with a shape of its own on a storage, as a view would have it.
at::Tensor tensor_on(const c10::intrusive_ptr<c10::StorageImpl>& storage, at::ScalarType dtype,
                     at::IntArrayRef shape, at::IntArrayRef strides, std::size_t offset);

}  // namespace nimble::aten
