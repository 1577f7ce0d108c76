#include "errors.h"

#include <nanobind/nanobind.h>
#include <torch/csrc/Exceptions.h>

namespace nb = nanobind;

namespace nimble::aten {

void translate_torch_errors() {
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const c10::Error&) {
      torch::translate_exception_to_python(error);
    } catch (const torch::PyTorchError&) {
      torch::translate_exception_to_python(error);
    } catch (const python_error&) {
      torch::translate_exception_to_python(error);
    } catch (const pybind11::error_already_set&) {
      torch::translate_exception_to_python(error);
    }
  });
}

void with_warnings(c10::function_ref<void()> body) {
  torch::PyWarningHandler buffer;
  try {
    body();
  } catch (...) {
    buffer.set_in_exception();
    throw;
  }
}

}  // namespace nimble::aten
