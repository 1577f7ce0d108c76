// Notices that parameters were written, moved or replaced, and that dicts gained or lost entries.
#pragma once

#include <c10/core/impl/SizesAndStrides.h>

#include <tuple>
#include <vector>

#include "memory.h"
#include "python.h"

namespace nimble::aten {

class Watch {
 public:
  using Place = std::tuple<nb::dict, nb::str, nb::object>;

  // Of `used`, which are read where they lie, it does not matter what is written into them. With
  // `contents`, those of `tensors` are looked at themselves: not every write is counted.
  Watch(const std::vector<at::Tensor>& tensors, std::vector<Place> places,
        const std::vector<at::Tensor>& used, bool contents);

  // Whether anything is not as at the last reset.
  bool changed() const;
  void reset();

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  struct State {
    std::uint32_t version;
    const c10::StorageImpl* storage;
    const void* data;
    std::int64_t offset;
    c10::impl::SizesAndStrides shape;  // no allocation of its own up to five dimensions

    explicit State(const c10::TensorImpl& tensor);
    // A look at the storage itself costs more than all the rest: where the tensor's numbers were
    // copied, it does not matter whether they have been moved since.
    bool is_as_written(const c10::TensorImpl& tensor) const;
    bool is_in_place(const c10::TensorImpl& tensor) const;

   private:
    bool is_same(const c10::TensorImpl& tensor) const;
  };
  struct Watched {
    at::Tensor tensor;
    State state;
    std::uint64_t contents;
  };

  static std::vector<Watched> watched(const std::vector<at::Tensor>& tensors);

  bool contents_;
  std::vector<Watched> tensors_, used_;
  // One dict of those in `places_`, and its entries there: [first, last).
  struct Dict {
    PyObject* dict;
    Py_ssize_t size;
    std::size_t first, last;
    std::uint64_t version;  // when the entries were last as expected
  };
  bool is_as_expected(const Dict& dict) const;

  std::vector<Place> places_;  // by dict
  mutable std::vector<Dict> dicts_;
};

}  // namespace nimble::aten
