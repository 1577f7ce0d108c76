// The Python face of nimble._aten; its stub is src/nimble/_aten.pyi.
#include <c10/util/StringUtil.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "errors.h"
#include "gate.h"
#include "table.h"
#include "threads.h"
#include "watch.h"

namespace nimble::aten {
namespace {

using namespace nb::literals;

using InputSpec = std::tuple<std::size_t, at::ScalarType, Ints, Ints>;

const ReplayApi& replay_api(nb::handle capsule) {
  const void* address = PyCapsule_GetPointer(capsule.ptr(), kReplayApiCapsule);
  if (address == nullptr) throw nb::python_error();
  const auto& api = *static_cast<const ReplayApi*>(address);
  if (api.version != kReplayApiVersion) {
    value_error(c10::str("nimble._core offers version ", api.version, " of its replay interface, ",
                         "nimble._aten was built for version ", kReplayApiVersion));
  }
  return api;
}

void plan(Table& table, std::uintptr_t tape, nb::handle api, const std::vector<InputSpec>& inputs,
          const std::vector<nb::tuple>& specs, std::vector<std::size_t> outputs,
          const std::vector<std::size_t>& mutated, bool repeatable) {
  std::vector<Input> expected;
  for (const auto& [slot, dtype, shape, strides] : inputs) {
    expected.push_back({slot, dtype, shape, strides});
  }
  std::vector<Output> parsed;
  for (const auto& spec : specs) parsed.push_back(parse_output(spec));
  table.plan(tape, replay_api(api), std::move(expected), std::move(parsed), std::move(outputs),
             mutated, repeatable);
}

// A module holds the dicts and parameters that are watched, and may hold the engine that watches.
const PyType_Slot kWatchSlots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(+[](PyObject* self, visitproc visit, void* arg) {
       Py_VISIT(Py_TYPE(self));
       return nb::inst_ready(self) ? nb::inst_ptr<Watch>(self)->traverse(visit, arg) : 0;
     })},
    {Py_tp_clear, reinterpret_cast<void*>(+[](PyObject* self) {
       nb::inst_ptr<Watch>(self)->clear();
       return 0;
     })},
    {0, nullptr},
};

void bind_table(nb::module_& module) {
  nb::class_<Ref>(module, "Ref")
      .def(nb::init<std::size_t>(), "id"_a)
      .def_ro("id", &Ref::id)
      .def("__repr__", [](const Ref& ref) { return "Ref(" + std::to_string(ref.id) + ")"; });
  nb::class_<Call>(module, "Call")
      .def_ro("fn", &Call::fn)
      .def_ro("context", &Call::context)
      .def_ro("kind", &Call::kind)
      .def_ro("op", &Call::op);
  nb::class_<Table>(module, "Table")
      .def(nb::init<std::size_t, std::size_t>(), "slots"_a, "values"_a)
      .def("storage", &Table::storage, "slot"_a, "nbytes"_a)
      .def("memory", &Table::memory, "slot"_a, "tensor"_a)
      .def("value", &Table::value, "id"_a, "slot"_a, "dtype"_a, "shape"_a, "strides"_a,
           "offset_bytes"_a)
      .def("call", &Table::call, nb::keep_alive<0, 1>(), "op"_a, "overload"_a, "args"_a, "kwargs"_a,
           "results"_a, "unused"_a = std::vector<std::size_t>())
      .def(
          "run",
          [](Table& table, const std::vector<const Call*>& calls) {
            with_warnings([&] { table.run(calls); });
          },
          "calls"_a)
      .def("plan", &plan, "tape"_a, "api"_a, "inputs"_a, "specs"_a, "outputs"_a, "mutated"_a,
           "repeatable"_a = false)
      .def(
          "replay",
          [](Table& table, nb::handle tensors, const Watch* watch) {
            nb::list outputs;
            with_warnings([&] { outputs = table.replay(tensors, watch); });
            return outputs;
          },
          "tensors"_a, "watch"_a = nb::none())
      .def("bind", &Table::bind, nb::keep_alive<0, 1>(), "tensors"_a);
  nb::class_<Bound>(module, "Bound")
      .def_prop_ro("outputs", &Bound::outputs)
      .def(
          "run",
          [](Bound& bound, const Watch* watch) { with_warnings([&] { bound.run(watch); }); },
          "watch"_a = nb::none());
}

}  // namespace

NB_MODULE(_aten, module) {
  nb::set_leak_warnings(false);  // a table in a global outlives the interpreter, and may
  check_layout();
  translate_torch_errors();
  make_mismatch(module);
  nb::exception<Changed>(module, "Changed");
  module.attr("BUILT_AGAINST") = NIMBLE_TORCH_VERSION;
  module.def("install_hooks", [](nb::handle api) { install_hooks(replay_api(api)); }, "api"_a);
  bind_table(module);
  nb::class_<Gate>(module, "Gate")
      .def(nb::init<std::size_t, std::optional<at::ScalarType>, at::ScalarType>(), "count"_a,
           "autocast"_a.none(), "default_dtype"_a)
      .def_ro_static("MOST", &Gate::kMost)
      .def("passes", &Gate::passes, "args"_a);
  nb::class_<Watch::Seen>(module, "Seen");
  nb::class_<Watch>(module, "Watch", nb::type_slots(kWatchSlots))
      .def(nb::init<const std::vector<at::Tensor>&, std::vector<Watch::Place>,
                    const std::vector<at::Tensor>&, bool>(),
           "tensors"_a, "places"_a, "used"_a = nb::make_tuple(), "contents"_a = false)
      .def("changed", &Watch::changed)
      .def("look", &Watch::look)
      .def("reset", &Watch::reset, "seen"_a);
}

}  // namespace nimble::aten
