#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "fleet.h"

namespace nb = nanobind;
using namespace nimble::cluster;

namespace {

// Tuples are read and made by hand: these are called several times for every event.
long number(PyObject* pair, int i) {
  const long value = PyLong_AsLong(PyTuple_GET_ITEM(pair, i));
  if (value == -1 && PyErr_Occurred()) throw nb::python_error();
  return value;
}

PyObject* pair_of(PyObject* sequence, Py_ssize_t i) {
  PyObject* item = PyTuple_GET_ITEM(sequence, i);
  if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 2) throw nb::type_error("expected tuples of two");
  return item;
}

const Placement& read(const nb::tuple& placement) {
  static thread_local Placement out;
  out.clear();
  const Py_ssize_t size = PyTuple_GET_SIZE(placement.ptr());
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = pair_of(placement.ptr(), i);
    out.emplace_back(static_cast<int>(number(item, 0)), static_cast<int>(number(item, 1)));
  }
  return out;
}

Traffic read_traffic(const nb::tuple& traffic, std::size_t links) {
  Traffic out;
  const Py_ssize_t size = PyTuple_GET_SIZE(traffic.ptr());
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = pair_of(traffic.ptr(), i);
    const double weight = PyFloat_AsDouble(PyTuple_GET_ITEM(item, 1));
    if (weight == -1 && PyErr_Occurred()) throw nb::python_error();
    const long link = number(item, 0);
    if (link < 0 || static_cast<std::size_t>(link) >= links || !(weight > 0))
      throw nb::value_error("a link that is not there, or a weight that is not positive");
    out.emplace_back(static_cast<int>(link), weight);
  }
  return out;
}

nb::object made(const Placement& placement) {
  PyObject* out = PyTuple_New(static_cast<Py_ssize_t>(placement.size()));
  for (std::size_t i = 0; i < placement.size(); ++i) {
    PyObject* pair = PyTuple_New(2);
    PyTuple_SET_ITEM(pair, 0, PyLong_FromLong(placement[i].first));
    PyTuple_SET_ITEM(pair, 1, PyLong_FromLong(placement[i].second));
    PyTuple_SET_ITEM(out, static_cast<Py_ssize_t>(i), pair);
  }
  return nb::steal(out);
}

void check_machine(const Fleet& fleet, int machine) {
  if (machine < 0 || machine >= fleet.free.machines()) throw nb::index_error("no such machine");
}

void check_link(const Fleet& fleet, int link) {
  if (link < 0 || static_cast<std::size_t>(link) >= fleet.links.size()) throw nb::index_error("no such link");
}

}  // namespace

NB_MODULE(_cluster, m) {
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  nb::class_<Fleet>(m, "Fleet")
      .def("__init__",
           [](Fleet* self, std::vector<int> gpus, std::vector<int> parent, std::vector<double> capacity,
              bool contention, double checkpoint_every_s, int classes) {
             if (gpus.empty() || parent.size() < gpus.size() || capacity.size() + 1 != parent.size())
               throw nb::value_error("a tree needs machines, and a link for every domain but the last");
             if (classes < 1 || classes > 64) throw nb::value_error("from 1 to 64 classes of machines");
             for (std::size_t d = 0; d < parent.size(); ++d)
               if (d + 1 < parent.size() ? parent[d] <= static_cast<int>(d) ||
                                               parent[d] >= static_cast<int>(parent.size())
                                         : parent[d] != -1)
                 throw nb::value_error("every domain comes before the one above it; the last has none");
             new (self) Fleet(std::move(gpus), std::move(parent), std::move(capacity), contention,
                              checkpoint_every_s, classes);
           },
           nb::arg("gpus"), nb::arg("parent"), nb::arg("capacity"), nb::arg("contention") = true,
           nb::arg("checkpoint_every_s") = Fleet::kNever, nb::arg("classes") = 1)
      .def_prop_ro("free", [](const Fleet& f) { return f.free.total(); })
      .def("free_in", [](const Fleet& f, int domain, std::uint64_t allowed) {
             if (domain < 0 || domain >= f.free.domains()) throw nb::index_error("no such domain");
             return f.free.in(domain, allowed);
           },
           nb::arg("domain"), nb::arg("allowed") = kAll)
      .def("left", [](const Fleet& f, int machine) { check_machine(f, machine); return f.free.left(machine); })
      .def("fit",
           [](const Fleet& f, int gpus, int tier, int choice, std::uint64_t allowed) -> nb::object {
             static thread_local Placement out;
             out.clear();
             if (choice < 0 || choice > 2) throw nb::value_error("no such choice");
             if (!f.free.fit(gpus, tier, static_cast<Choice>(choice), allowed, out)) return nb::none();
             return made(out);
           },
           nb::arg("gpus"), nb::arg("tier"), nb::arg("choice") = 0, nb::arg("allowed") = kAll)
      .def("take",
           [](Fleet& f, nb::tuple placement, bool of_closed) {
             const int without = f.free.take(read(placement), of_closed);
             if (without >= 0) throw nb::value_error(std::to_string(without).c_str());
           },
           nb::arg("placement"), nb::arg("of_closed") = false)
      .def("give",
           [](Fleet& f, nb::tuple placement) {
             const int full = f.free.give(read(placement));
             if (full >= 0) throw nb::value_error(std::to_string(full).c_str());
           })
      .def("set_open", [](Fleet& f, int machine, bool open) { check_machine(f, machine); f.free.set_open(machine, open); })
      .def("set_class", [](Fleet& f, int machine, int to) {
             check_machine(f, machine);
             if (to < 0 || to >= f.free.classes()) throw nb::index_error("no such class");
             f.free.set_class(machine, to);
           })
      .def("begin",
           [](Fleet& f, long long job, double now, double at, double done, double total, double speed,
              double demand, nb::tuple traffic) {
             f.begin(job, now, at, done, total, speed, demand, read_traffic(traffic, f.links.size()));
           })
      .def("end", &Fleet::end)
      .def("fail", &Fleet::fail)
      .def("done", &Fleet::done)
      .def("share", &Fleet::share)
      .def("probe", [](Fleet& f, double demand, nb::tuple traffic) {
             return f.probe(demand, read_traffic(traffic, f.links.size()));
           })
      .def("settle", [](Fleet& f, double now) {
             std::vector<std::pair<long long, double>> changed;
             f.settle(now, changed);
             return changed;
           })
      .def("next", &Fleet::next)
      .def("load", [](const Fleet& f, int link) { check_link(f, link); return f.links.load(link); })
      .def("flows_on", [](const Fleet& f, int link) { check_link(f, link); return f.links.flows_on(link); })
      .def("shared_link_s", &Fleet::shared_link_s)
      .def("slowed_s", &Fleet::slowed_s);
}
