#include "python.h"

#include <torch/csrc/Dtype.h>

// As in torch/csrc/autograd/python_variable.h, which takes 17 s to compile. check_layout() makes
// sure that what is repeated here holds.
struct THPVariable {
  PyObject_HEAD
  at::Tensor cdata;
};
extern PyObject* THPVariableClass;
PyObject* THPVariable_Wrap(const at::TensorBase& tensor);

namespace nimble::aten {

bool is_tensor(nb::handle object) {
  if (object.type().ptr() == THPVariableClass) return true;
  const int found = PyObject_IsInstance(object.ptr(), THPVariableClass);
  if (found < 0) PyErr_Clear();
  return found > 0;
}

const at::Tensor& unpack(nb::handle tensor) {
  return reinterpret_cast<THPVariable*>(tensor.ptr())->cdata;
}

nb::object wrap(const at::Tensor& tensor) {
  PyObject* object = THPVariable_Wrap(tensor);
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

void check_layout() {
  nb::object tensor = nb::module_::import_("torch").attr("Tensor")();
  const auto address = nb::cast<std::uintptr_t>(tensor.attr("_cdata"));
  if (address != reinterpret_cast<std::uintptr_t>(unpack(tensor).unsafeGetTensorImpl())) {
    throw nb::import_error("nimble._aten was built for another torch; build it for this one");
  }
}

bool is_dtype(nb::handle object) { return THPDtype_Check(object.ptr()); }

at::ScalarType dtype(nb::handle object) {
  return reinterpret_cast<THPDtype*>(object.ptr())->scalar_type;
}

void value_error(const std::string& text) { throw nb::value_error(text.c_str()); }

}  // namespace nimble::aten
