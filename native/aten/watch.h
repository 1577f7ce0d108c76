// Notices that parameters were written, moved or replaced, and that dicts gained or lost entries.
#pragma once

#include <c10/core/impl/SizesAndStrides.h>

#include <exception>
#include <memory>
#include <tuple>
#include <vector>

#include "memory.h"
#include "python.h"

namespace nimble::aten {

// nimble._aten.Changed
struct Changed : std::exception {
  const char* what() const noexcept override { return "something that is watched has changed"; }
};

class Watch {
 public:
  using Place = std::tuple<nb::dict, nb::str, nb::object>;

  // Of `used`, which are read where they lie, it does not matter what is written into them. With
  // `contents`, those of `tensors` are looked at themselves: not every write is counted.
  Watch(const std::vector<at::Tensor>& tensors, std::vector<Place> places,
        const std::vector<at::Tensor>& used, bool contents);

  // The tensors at some time.
  class Seen;

  // Whether anything is not as at the last reset.
  bool changed() const;
  Seen look() const;
  void reset(const Seen& seen);

  // The part of it that has to be known before a replay.
  bool changed_before() const;

  // One look at all the rest, a little at a time and without the GIL, so that it can be taken where
  // a replay has to wait. It must be over before the watch is gone.
  class Round;

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
    // Longer shapes have memory of their own, which goes when they are replaced.
    bool can_be_read_at_any_time() const { return shape.size() <= C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE; }

   private:
    bool is_same(const c10::TensorImpl& tensor) const;
  };
  struct Watched {
    at::Tensor tensor;
    State state;
    std::uint64_t contents;
  };

  using AllWatched = std::shared_ptr<const std::vector<Watched>>;  // replaced, never written

  static AllWatched watched(const std::vector<at::Tensor>& tensors, bool contents);
  static bool any_written(const std::vector<Watched>& tensors);
  bool used_elsewhere() const;

  bool contents_;
  AllWatched tensors_, used_;
  // One dict of those in `places_`, and its entries there: [first, last).
  struct Dict {
    PyObject* dict;
    Py_ssize_t size;
    std::size_t first, last;
    std::uint64_t version;  // when the entries were last as expected
  };
  // The look of a round, which may be taken while another thread writes what it has seen.
  static bool is_as_seen(Dict& dict);
  bool is_as_expected(const Dict& dict) const;

  std::vector<Place> places_;  // by dict
  mutable std::vector<Dict> dicts_;
};

class Watch::Seen {
  AllWatched tensors_, used_;
  friend Watch;
};

class Watch::Round {
 public:
  explicit Round(const Watch& watch) : watch_(watch), tensors_(watch.tensors_) {}

  // False once everything has been looked at.
  bool go_on();
  // Whether anything was not as at the last reset, after a look at what is left. Needs the GIL.
  bool changed();

 private:
  static constexpr std::size_t kPiece = 8;

  const Watch& watch_;
  const AllWatched tensors_;
  std::size_t next_ = 0;  // of the tensors, and then of the dicts
  bool written_ = false, unsure_ = false;
};

}  // namespace nimble::aten
