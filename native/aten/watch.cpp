#include "watch.h"

#include <algorithm>
#include <functional>

namespace nimble::aten {
namespace {

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
             const std::vector<at::Tensor>& used)
    : tensors_(watched(tensors)), used_(watched(used)), places_(std::move(places)) {
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

std::vector<Watch::Watched> Watch::watched(const std::vector<at::Tensor>& tensors) {
  std::vector<Watched> found;
  for (const auto& tensor : tensors) {
    if (!is_plain_anywhere(tensor)) value_error("only ordinary dense tensors can be watched");
    found.push_back({tensor, State(*tensor.unsafeGetTensorImpl())});
  }
  return found;
}

bool Watch::changed() const {
  for (const auto& [tensor, state] : tensors_) {
    if (!state.is_as_written(*tensor.unsafeGetTensorImpl())) return true;
  }
  for (const auto& [tensor, state] : used_) {
    if (!state.is_in_place(*tensor.unsafeGetTensorImpl())) return true;
  }
  for (Dict& dict : dicts_) {
    const std::uint64_t version = version_of(dict.dict);
    if (version != 0 && version == dict.version) continue;
    if (!is_as_expected(dict)) return true;
    dict.version = version;
  }
  return false;
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

void Watch::reset() {
  for (auto* watched : {&tensors_, &used_}) {
    for (auto& [tensor, state] : *watched) state = State(*tensor.unsafeGetTensorImpl());
  }
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

}  // namespace nimble::aten
