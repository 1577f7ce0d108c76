// Between Python's objects and torch's.
#pragma once

#include <ATen/core/Tensor.h>
#include <nanobind/nanobind.h>

#include <string>

namespace nb = nanobind;

namespace nimble::aten {

bool is_tensor(nb::handle object);
const at::Tensor& unpack(nb::handle tensor);
// The Python object of a tensor: always the same one for the same tensor.
nb::object wrap(const at::Tensor& tensor);
// Throws unless `unpack` fits the torch that is running.
void check_layout();

bool is_dtype(nb::handle object);
at::ScalarType dtype(nb::handle object);

[[noreturn]] void value_error(const std::string& text);

}  // namespace nimble::aten

namespace nanobind::detail {

template <>
struct type_caster<at::Tensor> {
  NB_TYPE_CASTER(at::Tensor, const_name("torch.Tensor"))
  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    if (!nimble::aten::is_tensor(source)) return false;
    value = nimble::aten::unpack(source);
    return true;
  }
};

template <>
struct type_caster<at::ScalarType> {
  NB_TYPE_CASTER(at::ScalarType, const_name("torch.dtype"))
  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
    if (!nimble::aten::is_dtype(source)) return false;
    value = nimble::aten::dtype(source);
    return true;
  }
};

}  // namespace nanobind::detail
