#include "inputs.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/StringUtil.h>

namespace nimble::aten {
namespace {

PyObject* mismatch_type = nullptr;

// Strides say nothing where a dimension has one element or the tensor has none.
bool same_strides(const at::Tensor& tensor, const Input& input) {
  const auto strides = tensor.strides();
  if (strides == at::IntArrayRef(input.strides) || tensor.numel() == 0) return true;
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (input.shape[i] != 1 && strides[i] != input.strides[i]) return false;
  }
  return true;
}

std::string why_not_plain(const at::Tensor& tensor) {
  const auto keys = tensor.key_set();
  if (keys.has(c10::DispatchKey::Python)) return "is a tensor subclass that dispatches to Python";
  if (keys.has_any(c10::functorch_transforms_ks)) return "is inside a functorch transform";
  if (keys.has(c10::DispatchKey::Functionalize)) return "is a functional tensor";
  if (tensor.device() != c10::kCPU) return c10::str("is on ", tensor.device(), ", expected cpu");
  if (tensor.layout() != c10::kStrided) {
    return c10::str("has layout ", tensor.layout(), ", expected strided");
  }
  if (tensor.is_conj()) return "is a lazy conjugate; call resolve_conj()";
  if (tensor.is_neg()) return "is a lazy negation; call resolve_neg()";
  return "is no ordinary CPU tensor";
}

}  // namespace

void make_mismatch(nb::module_& module) {
  mismatch_type = PyErr_NewExceptionWithDoc(
      "nimble._aten.Mismatch", "A tensor does not fit the plan; `args` are (index, text).",
      PyExc_ValueError, nullptr);
  if (mismatch_type == nullptr) throw nb::python_error();
  module.attr("Mismatch") = nb::borrow(mismatch_type);
}

void raise_mismatch(std::size_t index, const std::string& text) {
  PyErr_SetObject(mismatch_type, nb::make_tuple(index, text.c_str()).ptr());
  throw nb::python_error();
}

void check(nb::handle object, const Input& input, std::size_t index) {
  if (!is_tensor(object)) {
    raise_mismatch(index, c10::str("is no tensor but ", nb::repr(object.type()).c_str()));
  }
  const at::Tensor& tensor = unpack(object);
  if (!is_plain(tensor)) raise_mismatch(index, why_not_plain(tensor));
  if (tensor.scalar_type() != input.dtype) {
    raise_mismatch(index, c10::str("has dtype ", c10::getDtypeNames(tensor.scalar_type()).first,
                                   ", expected ", c10::getDtypeNames(input.dtype).first));
  }
  if (tensor.sizes() != at::IntArrayRef(input.shape)) {
    raise_mismatch(index, c10::str("has shape ", tensor.sizes(), ", expected ",
                                   at::IntArrayRef(input.shape)));
  }
  if (!same_strides(tensor, input)) {
    raise_mismatch(index, c10::str("has strides ", tensor.strides(), ", expected ",
                                   at::IntArrayRef(input.strides)));
  }
  if (input.mutated && tensor.is_inference() && !c10::InferenceMode::is_enabled()) {
    raise_mismatch(index, "is written, but is an inference tensor outside of inference mode");
  }
}

void check_overlaps(const std::vector<Input>& inputs, const std::vector<Range>& ranges,
                    const std::vector<Slot>& slots, const std::vector<std::size_t>& mutated_slots) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (const std::size_t slot : mutated_slots) {
      if (slots[slot].is_memory() && ranges[i].overlaps(slots[slot].range())) {
        raise_mismatch(i, "shares memory with a state that the call writes");
      }
    }
    if (!inputs[i].mutated) continue;
    for (std::size_t j = 0; j < inputs.size(); ++j) {
      if (j != i && ranges[i].overlaps(ranges[j])) {
        raise_mismatch(i, c10::str("is written, but shares memory with input ", j));
      }
    }
    for (const auto& slot : slots) {
      if (slot.is_memory() && ranges[i].overlaps(slot.range())) {
        raise_mismatch(i, "is written, but shares memory with a parameter or state of the plan");
      }
    }
  }
}

}  // namespace nimble::aten
