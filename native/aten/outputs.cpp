#include "outputs.h"

#include <ATen/ops/as_strided.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/StringUtil.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nimble::aten {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};

// With the caller's autograd, as the op that made the view would have had, but without the caller's
// modes: the rest of a replay does not enter them either.
at::Tensor view(const at::Tensor& tensor, const Strided& strided) {
  const c10::impl::ExcludeDispatchKeyGuard no_modes(c10::python_ks);
  const auto offset = static_cast<std::int64_t>(strided.offset / tensor.itemsize());
  return at::as_strided(tensor, strided.shape, strided.strides, tensor.storage_offset() + offset);
}

template <class T>
T field(nb::tuple spec, std::size_t index) {
  T value;
  if (index >= spec.size() || !nb::try_cast<T>(spec[index], value)) {
    value_error(c10::str("output ", nb::repr(spec).c_str(), ": field ", index,
                         " is missing or of the wrong type"));
  }
  return value;
}

Strided strided(nb::tuple spec, std::size_t from) {
  return {field<Ints>(spec, from), field<Ints>(spec, from + 1), field<std::size_t>(spec, from + 2)};
}

}  // namespace

Output parse_output(nb::tuple spec) {
  const auto kind = field<std::string>(spec, 0);
  const auto at = field<std::size_t>(spec, 1);
  if (kind == "fresh") return Fresh{at, field<at::ScalarType>(spec, 2), strided(spec, 3)};
  if (kind == "input") return Passed{at};
  if (kind == "input_view") return PassedView{at, strided(spec, 2)};
  if (kind == "memory") return Kept{at};
  if (kind == "memory_view") return KeptView{at, strided(spec, 2)};
  value_error(c10::str("output ", nb::repr(spec).c_str(), " is of no known kind"));
}

void FreshMemory::allocate(std::size_t nbytes) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<std::int64_t>(nbytes),
      c10::GetCPUAllocator(), /*resizable=*/true);
  memories_.push_back({std::move(storage), nbytes, {}});
}

bool FreshMemory::write_again() {
  for (const auto& [storage, nbytes, made] : memories_) {
    if (storage->nbytes() < nbytes) return false;
    for (const auto& [tensor, strided] : made) {
      if (tensor.storage().unsafeGetStorageImpl() != storage.get() ||
          tensor.sizes() != at::IntArrayRef(strided.shape) ||
          tensor.strides() != at::IntArrayRef(strided.strides)) {
        return false;
      }
    }
    if (!made.empty()) bump_version(made.front().first);
  }
  return true;
}

bool FreshMemory::overlaps(const Range& range) const {
  for (const auto& memory : memories_) {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.storage->data());
    if (range.overlaps({begin, begin + memory.nbytes})) return true;
  }
  return false;
}

at::Tensor FreshMemory::tensor(const Fresh& output) {
  auto& [storage, nbytes, made] = memories_[output.place];
  at::Tensor tensor = tensor_on(storage, output.dtype, output.strided.shape, output.strided.strides,
                                output.strided.offset);
  if (!made.empty() && !tensor.is_inference()) {
    tensor.unsafeGetTensorImpl()->set_version_counter(
        made.front().first.unsafeGetTensorImpl()->version_counter());
  }
  made.emplace_back(tensor, output.strided);
  return tensor;
}

nb::object hand_out(const Output& output, const std::vector<nb::object>& inputs,
                    const std::vector<Slot>& slots, FreshMemory& fresh) {
  return std::visit(
      Overloaded{
          [&](const Fresh& made) { return wrap(fresh.tensor(made)); },
          [&](const Passed& passed) { return inputs[passed.index]; },
          [&](const PassedView& seen) {
            return wrap(view(unpack(inputs[seen.index]), seen.strided));
          },
          [&](const Kept& kept) { return wrap(slots[kept.slot].tensor()); },
          [&](const KeptView& seen) { return wrap(view(slots[seen.slot].tensor(), seen.strided)); },
      },
      output);
}

}  // namespace nimble::aten
