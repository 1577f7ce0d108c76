#include "gate.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/forward_grad.h>

namespace nimble::aten {
namespace {

PyTypeObject* tensor_class() {
  static const nb::handle found = nb::object(nb::module_::import_("torch").attr("Tensor")).release();
  return reinterpret_cast<PyTypeObject*>(found.ptr());
}

}  // namespace

bool Gate::passes(nb::tuple args) const {
  if (args.size() != count_ || !is_quiet()) return false;
  const bool gradients = c10::GradMode::is_enabled();
  for (std::size_t i = 0; i < count_; ++i) {
    const nb::handle arg = args[i];
    if (Py_TYPE(arg.ptr()) != tensor_class()) return false;
    const at::Tensor& tensor = unpack(arg);
    if (tensor.is_nested() || (gradients && tensor.requires_grad())) return false;
    for (std::size_t j = 0; j < i; ++j) {
      if (args[j].is(arg)) return false;
    }
  }
  return true;
}

bool Gate::is_quiet() const {
  if (c10::impl::TorchDispatchModeTLS::any_modes_set() ||
      at::impl::PythonTorchFunctionTLS::stack_len() != 0 ||
      torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr) {
    return false;
  }
  const bool autocasts = at::autocast::is_autocast_enabled(at::kCPU);
  if (autocasts != autocast_.has_value()) return false;
  if (autocasts && at::autocast::get_autocast_dtype(at::kCPU) != *autocast_) return false;
  return c10::get_default_dtype_as_scalartype() == default_dtype_;
}

}  // namespace nimble::aten
