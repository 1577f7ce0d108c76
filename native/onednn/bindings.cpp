#include "bindings.h"

#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "call.h"
#include "primitive.h"
#include "problems.h"
#include "python_post.h"
#include "without_gil.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace nimble::onednn {
namespace {

// oneDNN may take a while to think of all that it has, and to generate code.
template <class Action>
auto without_gil(Action action) {
  const WithoutGil released;
  return action();
}

nb::object strides_of(const Desc& desc) {
  const auto found = desc.strides();
  return found ? nb::object(nb::tuple(nb::cast(*found))) : nb::none();
}

std::string repr(const Desc& desc) {
  const auto strides = desc.strides();
  return "Desc(" + text(desc.dims()) + ", " + (strides ? text(*strides) : "opaque") + ", '" +
         desc.dtype() + "')";
}

void bind_desc(nb::module_& module) {
  nb::class_<Desc>(module, "Desc")
      .def(nb::init<const Dims&, const Dims&, std::string_view>(), "dims"_a, "strides"_a,
           "dtype"_a = "float32")
      .def_prop_ro("dims", [](const Desc& desc) { return nb::tuple(nb::cast(desc.dims())); })
      .def_prop_ro("strides", &strides_of)
      .def_prop_ro("dtype", &Desc::dtype)
      .def_prop_ro("bytes", &Desc::bytes)
      .def("grouped", &Desc::grouped, "groups"_a)
      .def("permuted", &Desc::permuted, "order"_a)
      .def("__eq__", [](const Desc& desc, nb::handle other) {
        return nb::isinstance<Desc>(other) && desc == nb::cast<const Desc&>(other);
      })
      .def("__hash__", &Desc::hash)
      .def("__repr__", &repr);
}

const Candidate& candidate_of(const Candidate& candidate) { return candidate; }
const Candidate& candidate_of(const Primitive& primitive) { return primitive.candidate(); }

// What candidates and primitives say alike.
template <class T>
nb::class_<T> bind_offer(nb::module_& module, const char* name) {
  nb::class_<T> bound(module, name);
  bound.def_prop_ro("implementation",
                    [](const T& self) { return candidate_of(self).implementation(); });
  bound.def_prop_ro("scratchpad_bytes",
                    [](const T& self) { return candidate_of(self).scratchpad_bytes(); });
  bound.def_prop_ro("weights", [](const T& self) { return candidate_of(self).weights(); });
  bound.def_prop_ro("roles", [](const T& self) {
    std::vector<std::string> names;
    for (const Role& role : candidate_of(self).roles()) names.push_back(role.name);
    return nb::tuple(nb::cast(names));
  });
  bound.def(
      "desc", [](const T& self, std::string_view role) { return candidate_of(self).desc(role); },
      "role"_a);
  return bound;
}

void bind_windows(nb::module_& module) {
  module.def(
      "convolution",
      [](const Desc& src, const Dims& weights_dims, bool bias, const Desc& dst,
         const Dims& strides, const Dims& dilation, const Dims& padding_l, const Dims& padding_r,
         std::int64_t groups, nb::sequence post, bool transposed) {
        return without_gil([&, post = post_from(post)] {
          return convolution(src, weights_dims, bias, dst,
                             {strides, dilation, padding_l, padding_r}, groups, post, transposed);
        });
      },
      "src"_a, "weights_dims"_a, "bias"_a, "dst"_a, "strides"_a, "dilation"_a, "padding_l"_a,
      "padding_r"_a, "groups"_a = 1, "post"_a = nb::tuple(), "transposed"_a = false);
  module.def(
      "pooling",
      [](std::string_view kind, const Desc& src, const Desc& dst, const Dims& kernel,
         const Dims& strides, const Dims& dilation, const Dims& padding_l, const Dims& padding_r,
         nb::sequence post) {
        return without_gil([&, post = post_from(post)] {
          return pooling(kind, src, dst, kernel, {strides, dilation, padding_l, padding_r}, post);
        });
      },
      "kind"_a, "src"_a, "dst"_a, "kernel"_a, "strides"_a, "dilation"_a, "padding_l"_a,
      "padding_r"_a, "post"_a = nb::tuple());
  module.def(
      "resampling",
      [](std::string_view kind, const Desc& src, const Desc& dst, nb::sequence post) {
        return without_gil(
            [&, post = post_from(post)] { return resampling(kind, src, dst, post); });
      },
      "kind"_a, "src"_a, "dst"_a, "post"_a = nb::tuple());
}

void bind_products(nb::module_& module) {
  module.def(
      "matmul",
      [](const Desc& src, const Weights& weights, bool bias, const Desc& dst, nb::sequence post) {
        return without_gil(
            [&, post = post_from(post)] { return matmul(src, weights, bias, dst, post); });
      },
      "src"_a, "weights"_a, "bias"_a, "dst"_a, "post"_a = nb::tuple());
  module.def(
      "inner_product",
      [](const Desc& src, const Dims& weights_dims, bool bias, const Desc& dst,
         nb::sequence post) {
        return without_gil([&, post = post_from(post)] {
          return inner_product(src, weights_dims, bias, dst, post);
        });
      },
      "src"_a, "weights_dims"_a, "bias"_a, "dst"_a, "post"_a = nb::tuple());
  module.def(
      "lstm",
      [](const Desc& src, const Desc& dst, bool reverse) {
        return without_gil([&] { return lstm(src, dst, reverse); });
      },
      "src"_a, "dst"_a, "reverse"_a = false);
  module.def(
      "gru",
      [](const Desc& src, const Desc& dst, bool reverse) {
        return without_gil([&] { return gru(src, dst, reverse); });
      },
      "src"_a, "dst"_a, "reverse"_a = false);
}

void bind_arithmetic(nb::module_& module) {
  module.def(
      "softmax",
      [](const Desc& src, const Desc& dst, std::int64_t axis, bool log, nb::sequence post) {
        return without_gil(
            [&, post = post_from(post)] { return softmax(src, dst, axis, log, post); });
      },
      "src"_a, "dst"_a, "axis"_a, "log"_a = false, "post"_a = nb::tuple());
  module.def(
      "layer_norm",
      [](const Desc& src, const Desc& dst, double eps, bool affine, nb::sequence post) {
        return without_gil(
            [&, post = post_from(post)] { return layer_norm(src, dst, eps, affine, post); });
      },
      "src"_a, "dst"_a, "eps"_a, "affine"_a, "post"_a = nb::tuple());
  module.def(
      "eltwise",
      [](std::string_view kind, const Desc& src, const Desc& dst, double alpha, double beta,
         nb::sequence post) {
        return without_gil(
            [&, post = post_from(post)] { return eltwise(kind, src, dst, alpha, beta, post); });
      },
      "kind"_a, "src"_a, "dst"_a, "alpha"_a = 0.0, "beta"_a = 0.0, "post"_a = nb::tuple());
  module.def(
      "binary",
      [](std::string_view kind, const Desc& a, const Desc& b, const Desc& dst, nb::sequence post) {
        return without_gil([&, post = post_from(post)] { return binary(kind, a, b, dst, post); });
      },
      "kind"_a, "a"_a, "b"_a, "dst"_a, "post"_a = nb::tuple());
  module.def(
      "reduction",
      [](std::string_view kind, const Desc& src, const Desc& dst, nb::sequence post) {
        return without_gil([&, post = post_from(post)] { return reduction(kind, src, dst, post); });
      },
      "kind"_a, "src"_a, "dst"_a, "post"_a = nb::tuple());
  module.def(
      "reorder",
      [](const Desc& src, const Desc& dst) {
        return without_gil([&] { return reorder(src, dst); });
      },
      "src"_a, "dst"_a);
}

}  // namespace

void bind(nb::module_& module, nb::class_<Tape>& tape) {
  bind_desc(module);
  bind_offer<Primitive>(module, "Primitive");
  bind_offer<Candidate>(module, "Candidate").def("create", [](const Candidate& candidate) {
    return without_gil([&] { return candidate.create(); });
  });
  bind_windows(module);
  bind_products(module);
  bind_arithmetic(module);
  module.def("onednn_version", &version);
  tape.def("primitive", &append, "stream"_a, "task"_a, "primitive"_a, "operands"_a);
}

}  // namespace nimble::onednn
