#include "watch.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>

namespace nimble::aten {
namespace {

constexpr std::size_t kLine = 64;

// An inference tensor has no version: what is written into it goes unnoticed, as in autograd.
std::uint32_t version_of(const c10::TensorImpl& tensor) {
  const auto& counter = tensor.version_counter();
  return counter.enabled() ? counter.current_version() : 0;
}

// A number that is another after every change of the dict; 0 where Python has none.
std::uint64_t version_of([[maybe_unused]] PyObject* dict) {
#if PY_VERSION_HEX < 0x030C0000
  return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
#else
  return 0;
#endif
}

// Of all bytes from the first element to the last, in lanes that the processor works on side by side.
std::uint64_t digest(const at::Tensor& tensor) {
  if (tensor.numel() == 0 || !tensor.is_cpu()) return 0;
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
  const std::size_t size = static_cast<std::size_t>(last + 1) * tensor.element_size();
  constexpr std::size_t kLanes = 8, kRow = kLanes * sizeof(std::uint64_t);
  constexpr std::uint64_t kPrime = 0x9E3779B97F4A7C15ULL;
  std::uint64_t lane[kLanes] = {1, 2, 3, 4, 5, 6, 7, 8}, word[kLanes];
  const auto take = [&] {
    for (std::size_t i = 0; i < kLanes; ++i) {
      lane[i] = (lane[i] ^ word[i]) * kPrime;
      lane[i] ^= lane[i] >> 32;
    }
  };
  std::size_t at = 0;
  for (; at + kRow <= size; at += kRow) {
    std::memcpy(word, bytes + at, kRow);
    take();
  }
  std::memset(word, 0, kRow);
  std::memcpy(word, bytes + at, size - at);
  take();
  std::uint64_t result = size;
  for (const std::uint64_t one : lane) result = (result ^ one) * kPrime;
  return result;
}

void fetch_tensor(const c10::TensorImpl& tensor) {
  const auto* bytes = reinterpret_cast<const char*>(&tensor);
  for (std::size_t at = 0; at < sizeof tensor; at += kLine) __builtin_prefetch(bytes + at);
}

// A version is a pointer to where it is counted.
void fetch_counter(const c10::TensorImpl& tensor) {
  const void* counter = nullptr;
  static_assert(sizeof counter == sizeof tensor.version_counter());
  std::memcpy(&counter, &tensor.version_counter(), sizeof counter);
  __builtin_prefetch(counter);
}

}  // namespace

Watch::State::State(const c10::TensorImpl& tensor)
    : version(version_of(tensor)),
      storage(tensor.unsafe_storage().unsafeGetStorageImpl()),
      data(storage->data()),
      offset(tensor.storage_offset()) {
  shape.set_sizes(tensor.sizes());
  shape.set_strides(tensor.strides());
}

// The shape, because `p.data = p.data.t()` leaves version and storage alone.
bool Watch::State::is_same(const c10::TensorImpl& tensor) const {
  return storage == tensor.unsafe_storage().unsafeGetStorageImpl() &&
         offset == tensor.storage_offset() && tensor.sizes() == shape.sizes_arrayref() &&
         tensor.strides() == shape.strides_arrayref();
}

bool Watch::State::is_as_written(const c10::TensorImpl& tensor) const {
  return version == version_of(tensor) && is_same(tensor);
}

bool Watch::State::is_in_place(const c10::TensorImpl& tensor) const {
  return is_same(tensor) && storage->data() == data;
}

Watch::Watch(const std::vector<at::Tensor>& tensors, std::vector<Place> places,
             const std::vector<at::Tensor>& used, bool contents)
    : contents_(contents),
      tensors_(watched(tensors, contents)),
      used_(watched(used, false)),
      places_(std::move(places)) {
  std::stable_sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
    return std::less<>()(std::get<0>(a).ptr(), std::get<0>(b).ptr());
  });
  for (std::size_t i = 0; i < places_.size(); ++i) {
    PyObject* dict = std::get<0>(places_[i]).ptr();
    if (dicts_.empty() || dicts_.back().dict != dict) {
      dicts_.push_back({dict, PyDict_Size(dict), i, i, 0});
    }
    dicts_.back().last = i + 1;
  }
}

Watch::AllWatched Watch::watched(const std::vector<at::Tensor>& tensors, bool contents) {
  std::vector<Watched> found;
  for (const auto& tensor : tensors) {
    if (!is_plain_anywhere(tensor)) value_error("only ordinary dense tensors can be watched");
    found.push_back(
        {tensor, State(*tensor.unsafeGetTensorImpl()), contents ? digest(tensor) : 0});
  }
  return std::make_shared<const std::vector<Watched>>(std::move(found));
}

bool Watch::changed() const {
  if (used_elsewhere()) return true;
  if (any_written(*tensors_)) return true;
  if (contents_) {
    for (const auto& watched : *tensors_) {
      if (watched.contents != digest(watched.tensor)) return true;
    }
  }
  for (Dict& dict : dicts_) {
    if (is_as_seen(dict)) continue;
    const std::uint64_t version = version_of(dict.dict);
    if (!is_as_expected(dict)) return true;
    std::atomic_ref(dict.version).store(version, std::memory_order_relaxed);
  }
  return false;
}

bool Watch::changed_before() const { return contents_ ? changed() : used_elsewhere(); }

bool Watch::any_written(const std::vector<Watched>& tensors) {
  return std::ranges::any_of(tensors, [](const Watched& watched) {
    return !watched.state.is_as_written(*watched.tensor.unsafeGetTensorImpl());
  });
}

bool Watch::used_elsewhere() const {
  return std::ranges::any_of(*used_, [](const Watched& watched) {
    return !watched.state.is_in_place(*watched.tensor.unsafeGetTensorImpl());
  });
}

bool Watch::is_as_seen(Dict& dict) {
  const std::uint64_t seen = std::atomic_ref(dict.version).load(std::memory_order_relaxed);
  return seen != 0 && seen == version_of(dict.dict);
}

bool Watch::is_as_expected(const Dict& dict) const {
  if (PyDict_Size(dict.dict) != dict.size) return false;
  for (std::size_t i = dict.first; i < dict.last; ++i) {
    const auto& [_, key, expected] = places_[i];
    PyObject* found = PyDict_GetItemWithError(dict.dict, key.ptr());
    if (found == nullptr && PyErr_Occurred() != nullptr) throw nb::python_error();
    if ((found == nullptr ? Py_None : found) != expected.ptr()) return false;
  }
  return true;
}

Watch::Seen Watch::look() const {
  const auto tensors_of = [](const AllWatched& all) {
    std::vector<at::Tensor> tensors;
    for (const auto& watched : *all) tensors.push_back(watched.tensor);
    return tensors;
  };
  Seen seen;
  seen.tensors_ = watched(tensors_of(tensors_), contents_);
  seen.used_ = watched(tensors_of(used_), false);
  return seen;
}

void Watch::reset(const Seen& seen) {
  tensors_ = seen.tensors_;
  used_ = seen.used_;
}

int Watch::traverse(visitproc visit, void* arg) const {
  for (const auto& [dict, key, expected] : places_) {
    Py_VISIT(dict.ptr());
    Py_VISIT(key.ptr());
    Py_VISIT(expected.ptr());
  }
  return 0;
}

void Watch::clear() {
  dicts_.clear();
  places_.clear();
}

bool Watch::Round::go_on() {
  const std::size_t tensors = tensors_->size();
  const std::size_t all = tensors + watch_.dicts_.size();
  const std::size_t last = std::min(next_ + kPiece, all);
  // What nobody has touched since the last call comes from far away: all of it at once.
  const auto fetch = [&](std::size_t from, auto part_of) {
    for (std::size_t i = from; i < std::min(from + kPiece, tensors); ++i) {
      part_of(*(*tensors_)[i].tensor.unsafeGetTensorImpl());
    }
    for (std::size_t i = std::max(from, tensors); i < std::min(from + kPiece, all); ++i) {
      __builtin_prefetch(watch_.dicts_[i - tensors].dict);
    }
  };
  fetch(next_ + 2 * kPiece, fetch_tensor);
  fetch(next_ + kPiece, fetch_counter);
  for (; next_ < last && next_ < tensors; ++next_) {
    const auto& [tensor, state, _] = (*tensors_)[next_];
    if (!state.can_be_read_at_any_time()) {
      unsure_ = true;
    } else if (!state.is_as_written(*tensor.unsafeGetTensorImpl())) {
      written_ = true;
    }
  }
  for (; next_ < last; ++next_) unsure_ |= !is_as_seen(watch_.dicts_[next_ - tensors]);
  return next_ < all;
}

// Another thread may have reset the watch since: what was written before that still counts here.
bool Watch::Round::changed() {
  while (go_on()) continue;
  return written_ || (unsure_ && (any_written(*tensors_) || watch_.changed()));
}

}  // namespace nimble::aten
