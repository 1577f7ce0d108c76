// nimble._core: tapes for Python, and the replay API for other extensions.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>


#include <algorithm>
#include <mutex>

#include "../kernels/attention.h"
#include "../kernels/dispatch.h"
#include "../kernels/parse_program.h"
#include "cores.h"
#include "fork_gate.h"
#include "hooks.h"
#include "kernels.h"
#include "pool.h"
#include "replay.h"
#include "replay_api.h"
#include "tape.h"
#include "without_gil.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace nimble {
namespace {

Tape& tape_at(void* tape) { return *static_cast<Tape*>(tape); }

const ReplayApi kReplayApi = {
    .version = kReplayApiVersion,
    .set_thread_hooks = set_thread_hooks,
    .lock = [](void* tape) { tape_at(tape).lock(); },
    .unlock = [](void* tape) { tape_at(tape).unlock(); },
    .set_slot =
        [](void* tape, std::size_t slot, void* address) {
          tape_at(tape).set_slot(static_cast<std::int64_t>(slot), address);
        },
    .replay = [](void* tape, const Pastime* pastime) { replay(tape_at(tape), pastime); },
};

// Without the GIL, so that nobody waits for one of the two while holding the other.
template <class Action>
auto with_lock(Tape& tape, Action action) {
  const WithoutGil released;
  const std::lock_guard held(tape);
  return action();
}

void set_slot_at(Tape& tape, std::int64_t slot, std::uintptr_t address) {
  with_lock(tape, [&] { tape.set_slot(slot, reinterpret_cast<void*>(address)); });
}

using Times = std::tuple<std::uint32_t, std::uint32_t, std::int64_t, std::int64_t>;

std::vector<Times> times_of(const std::vector<Span>& spans) {
  std::vector<Times> times;
  for (const Span& s : spans) times.emplace_back(s.task, s.thread, s.start_ns, s.stop_ns);
  return times;
}

void set_workers(std::int64_t workers) {
  Pool::get().set_workers(static_cast<std::size_t>(std::max<std::int64_t>(workers, 0)));
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const NativeKernel& kernel : native_kernels()) names.push_back(kernel.name);
  return names;
}

// Replays that are going on may need the GIL to end, and os.fork() holds it.
void let_forks_wait_without_gil() {
  const auto close = nb::cpp_function([] {
    const WithoutGil released;
    fork_gate::close();
  });
  const auto open = nb::cpp_function([] { fork_gate::open(); });
  const auto register_at_fork = nb::module_::import_("os").attr("register_at_fork");
  register_at_fork("before"_a = close, "after_in_parent"_a = open, "after_in_child"_a = open);
}

void bind_tape(nb::module_& module) {
  nb::class_<Tape>(module, "Tape")
      .def(nb::init<std::int64_t, std::int64_t, std::int64_t>(), "streams"_a, "tasks"_a, "slots"_a)
      .def(
          "call",
          [](Tape& tape, std::int64_t stream, std::int64_t task, std::uintptr_t fn,
             std::uintptr_t context) {
            tape.call(stream, task, reinterpret_cast<KernelFn>(fn),
                      reinterpret_cast<void*>(context));
          },
          "stream"_a, "task"_a, "fn"_a, "context"_a)
      .def("native", &Tape::native, "stream"_a, "task"_a, "kernel"_a, "operands"_a, "ints"_a,
           "floats"_a)
      .def("wait", &Tape::wait, "stream"_a, "on"_a)
      .def("finish", &Tape::finish)
      .def_prop_ro("address", [](Tape& tape) { return reinterpret_cast<std::uintptr_t>(&tape); })
      .def("set_slot", &set_slot_at, "slot"_a, "address"_a)
      .def("replay", [](Tape& tape) { with_lock(tape, [&] { replay(tape); }); })
      .def("record",
           [](Tape& tape) { return times_of(with_lock(tape, [&] { return record(tape); })); })
      .def_prop_rw(
          "recording", [](Tape& tape) { return with_lock(tape, [&] { return tape.spans != nullptr; }); },
          [](Tape& tape, bool on) { with_lock(tape, [&] { keep_times(tape, on); }); })
      .def_prop_ro("recorded",
                   [](Tape& tape) {
                     return times_of(with_lock(tape, [&] { return in_order(tape.recorded); }));
                   })
      .def_prop_ro("lasted_ns",
                   [](Tape& tape) { return with_lock(tape, [&] { return tape.lasted_ns; }); })
      .def_prop_ro("failed_task", [](Tape& tape) {
        return with_lock(tape, [&] { return tape.failed_task; });
      });
}

}  // namespace
}  // namespace nimble

NB_MODULE(_core, module) {
  using namespace nimble;
  nb::set_leak_warnings(false);  // a tape in a global outlives the interpreter, and may
  bind_tape(module);
  module.def("native_kernels", kernel_names);
  module.def("instruction_set", [] { return name_of(instruction_set()); });
  module.def("instruction_sets", instruction_sets);
  module.def("multiplies_bfloat16", multiplies_bfloat16);
  module.def("opcodes", opcodes);
  module.def("is_known_program", is_known_program, "inputs"_a, "outputs"_a, "ints"_a, "floats"_a);
  module.def(
      "attention_scratch",
      [](std::int64_t keys, std::int64_t dim, std::int64_t value_dim) {
        return attention_scratch(keys, dim, value_dim) * static_cast<std::int64_t>(sizeof(float));
      },
      "keys"_a, "dim"_a, "value_dim"_a);
  module.def(
      "attention_gradient_scratch",
      [](std::int64_t queries, std::int64_t keys, std::int64_t dim, std::int64_t value_dim) {
        return attention_gradient_scratch(queries, keys, dim, value_dim) *
               static_cast<std::int64_t>(sizeof(float));
      },
      "queries"_a, "keys"_a, "dim"_a, "value_dim"_a);
  module.def("set_workers", set_workers, "n"_a);
  module.def("usable_cores", usable_cores);
  module.def("pool_size", [] { return Pool::get().size(); });
  module.attr("replay_api") = nb::capsule(&kReplayApi, kReplayApiCapsule);
  let_forks_wait_without_gil();
}
