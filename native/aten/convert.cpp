#include "convert.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/jit_type.h>
#include <c10/util/StringUtil.h>
#include <nanobind/stl/string.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>

namespace nimble::aten {
namespace {

using c10::IValue;
using c10::TypeKind;

class Converter {
 public:
  Converter(const c10::FunctionSchema& schema, const c10::Argument& declared, const Values& values)
      : schema_(schema), declared_(declared), values_(values) {}

  IValue convert(nb::handle given) const { return convert(given, declared_.real_type()); }

 private:
  IValue convert(nb::handle given, const c10::TypePtr& type) const;
  IValue list(nb::handle given, const c10::TypePtr& element) const;
  at::Tensor tensor(nb::handle given) const;
  at::Scalar scalar(nb::handle given) const;
  std::int64_t integer(nb::handle given) const;
  double real(nb::handle given) const;
  bool boolean(nb::handle given) const;
  c10::Device device(nb::handle given) const;

  template <class T, class Convert>
  IValue list_of(const std::vector<nb::object>& items, Convert one) const {
    c10::List<T> list;
    list.reserve(items.size());
    for (const auto& item : items) list.push_back((this->*one)(item));
    return list;
  }

  [[noreturn]] void fail(nb::handle given) const {
    fail(c10::str("expected ", declared_.real_type()->str(), ", got ",
                  nb::repr(given).c_str()));
  }
  [[noreturn]] void fail(const std::string& why) const {
    value_error(c10::str(schema_.operator_name(), ", argument '", declared_.name(), "': ", why));
  }

  const c10::FunctionSchema& schema_;
  const c10::Argument& declared_;
  const Values& values_;
};

IValue Converter::convert(nb::handle given, const c10::TypePtr& type) const {
  switch (type->kind()) {
    case TypeKind::OptionalType:
      if (given.is_none()) return IValue();
      return convert(given, type->castRaw<c10::OptionalType>()->getElementType());
    case TypeKind::ListType:
      return list(given, type->castRaw<c10::ListType>()->getElementType());
    case TypeKind::TensorType:
      return tensor(given);
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return integer(given);
    case TypeKind::FloatType:
    case TypeKind::SymFloatType:
      return real(given);
    case TypeKind::BoolType:
    case TypeKind::SymBoolType:
      return boolean(given);
    case TypeKind::NumberType:
      return scalar(given);
    case TypeKind::StringType:
      if (!nb::isinstance<nb::str>(given)) fail(given);
      return std::string(nb::borrow<nb::str>(given).c_str());
    case TypeKind::ScalarTypeType:
      if (!is_dtype(given)) fail(given);
      return dtype(given);
    case TypeKind::LayoutType:
      if (!THPLayout_Check(given.ptr())) fail(given);
      return reinterpret_cast<THPLayout*>(given.ptr())->layout;
    case TypeKind::MemoryFormatType:
      if (!THPMemoryFormat_Check(given.ptr())) fail(given);
      return reinterpret_cast<THPMemoryFormat*>(given.ptr())->memory_format;
    case TypeKind::DeviceObjType:
      return device(given);
    default:
      fail(c10::str("its type ", type->str(), " is not supported"));
  }
}

IValue Converter::list(nb::handle given, const c10::TypePtr& element) const {
  std::vector<nb::object> items;
  if (nb::isinstance<nb::list>(given) || nb::isinstance<nb::tuple>(given)) {
    for (nb::handle item : given) items.push_back(nb::borrow(item));
  } else if (declared_.N()) {
    // `int[2] stride` takes one number for all.
    items.assign(static_cast<std::size_t>(*declared_.N()), nb::borrow(given));
  } else {
    fail(given);
  }
  switch (element->kind()) {
    case TypeKind::TensorType:
      return list_of<at::Tensor>(items, &Converter::tensor);
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return list_of<std::int64_t>(items, &Converter::integer);
    case TypeKind::FloatType:
      return list_of<double>(items, &Converter::real);
    case TypeKind::BoolType:
      return list_of<bool>(items, &Converter::boolean);
    default: {
      c10::impl::GenericList list(element);
      for (const auto& item : items) list.push_back(convert(item, element));
      return list;
    }
  }
}

at::Tensor Converter::tensor(nb::handle given) const {
  if (nb::isinstance<Ref>(given)) {
    const std::size_t id = nb::cast<Ref&>(given).id;
    if (id >= values_.size() || !values_[id].defined()) {
      fail(c10::str("value ", id, " is not defined"));
    }
    return values_[id];
  }
  // As eager: a number where a tensor is asked for takes part without deciding the dtype.
  if (nb::isinstance<nb::int_>(given) || nb::isinstance<nb::float_>(given) ||
      PyComplex_Check(given.ptr())) {
    return at::native::wrapped_scalar_tensor(scalar(given));
  }
  fail(given);
}

at::Scalar Converter::scalar(nb::handle given) const {
  if (PyBool_Check(given.ptr())) return given.ptr() == Py_True;
  if (PyLong_Check(given.ptr())) return integer(given);
  if (PyFloat_Check(given.ptr())) return PyFloat_AS_DOUBLE(given.ptr());
  if (PyComplex_Check(given.ptr())) {
    const Py_complex number = PyComplex_AsCComplex(given.ptr());
    return c10::complex<double>(number.real, number.imag);
  }
  fail(given);
}

std::int64_t Converter::integer(nb::handle given) const {
  if (!PyLong_Check(given.ptr())) fail(given);
  int overflow = 0;
  const std::int64_t number = PyLong_AsLongLongAndOverflow(given.ptr(), &overflow);
  if (overflow != 0) fail(given);
  return number;
}

double Converter::real(nb::handle given) const {
  if (PyFloat_Check(given.ptr())) return PyFloat_AS_DOUBLE(given.ptr());
  return static_cast<double>(integer(given));
}

bool Converter::boolean(nb::handle given) const {
  if (!PyBool_Check(given.ptr())) fail(given);
  return given.ptr() == Py_True;
}

c10::Device Converter::device(nb::handle given) const {
  if (THPDevice_Check(given.ptr())) return reinterpret_cast<THPDevice*>(given.ptr())->device;
  if (!nb::isinstance<nb::str>(given)) fail(given);
  try {
    return c10::Device(nb::borrow<nb::str>(given).c_str());
  } catch (const c10::Error&) {
    fail(given);
  }
}

}  // namespace

torch::jit::Stack convert(const c10::FunctionSchema& schema, nb::list args, nb::dict kwargs,
                          const Values& values) {
  const auto& declared = schema.arguments();
  torch::jit::Stack stack;
  stack.reserve(declared.size());
  for (std::size_t i = 0; i < declared.size(); ++i) {
    const Converter argument(schema, declared[i], values);
    const nb::str name(declared[i].name().c_str());
    const bool by_name = kwargs.contains(name);
    if (i < args.size() && !declared[i].kwarg_only()) {
      if (by_name) {
        value_error(c10::str(schema.operator_name(), ", argument '", declared[i].name(),
                             "' is given twice"));
      }
      stack.push_back(argument.convert(args[i]));
    } else if (by_name) {
      stack.push_back(argument.convert(kwargs[name]));
    } else if (declared[i].default_value()) {
      stack.push_back(*declared[i].default_value());
    } else {
      value_error(c10::str(schema.operator_name(), ", argument '", declared[i].name(),
                           "' is missing"));
    }
  }
  std::size_t positions = 0;
  for (const auto& argument : declared) positions += !argument.kwarg_only();
  if (args.size() > positions) {
    value_error(c10::str(schema.operator_name(), " takes ", positions,
                         " positional arguments, got ", args.size()));
  }
  for (auto [name, _] : kwargs) {
    if (!schema.argumentIndexWithName(nb::cast<std::string>(name))) {
      value_error(c10::str(schema.operator_name(), " has no argument '",
                           nb::cast<std::string>(name), "'"));
    }
  }
  return stack;
}

}  // namespace nimble::aten
