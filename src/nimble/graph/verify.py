"""The rules of the IR, checked. Runs between stages in tests and with NIMBLE_VERIFY=1."""

from __future__ import annotations

from nimble.errors import GraphError
from nimble.graph.dependencies import extent, older
from nimble.graph.ir import DType, Graph, Role, Task, Value, refs

_WRITABLE = {Role.INTERMEDIATE, Role.OUTPUT}


def verify(graph: Graph) -> Graph:
    """Return the graph, or raise GraphError naming the task or value that breaks a rule."""
    for index, value in enumerate(graph.values):
        _verify_value(graph, index, value)
    written: dict[int, int] = {}
    memory = _Memory(graph)
    names: set[str] = set()
    for index, task in enumerate(graph.tasks):
        if task.name in names:
            raise GraphError(f"task {index} {task.name!r}: another task has the same name")
        names.add(task.name)
        _verify_task(graph, task, memory, written, index)
    for v in graph.inputs:
        if not (0 <= v < len(graph.values)) or graph[v].role is not Role.INPUT:
            raise GraphError(f"graph {graph.name!r}: input %{v} is not a value of role input")
    for v in graph.outputs:
        if not 0 <= v < len(graph.values):
            raise GraphError(f"graph {graph.name!r}: output %{v} does not exist")
        if not memory.shows(v):
            raise GraphError(
                f"graph {graph.name!r}: output %{v} is written by no task, or is written over"
            )
    if graph.prologue is not None:
        _verify_prologue(graph, verify(graph.prologue))
    return graph


def _verify_prologue(graph: Graph, prologue: Graph) -> None:
    for root in prologue.roots(Role.INPUT, Role.STATE):
        raise GraphError(f"prologue: reads {root.name!r} of role {root.role}, which calls change")
    constants = {v.name: v.type for v in graph.roots(Role.CONSTANT)}
    for v in prologue.outputs:
        made = prologue[v]
        if (
            constants.get(made.name) != made.type
            or made.role is not Role.OUTPUT
            or not made.is_root
        ):
            raise GraphError(
                f"prologue: output %{v} {made.name!r} of {made.type} fills no constant of the graph"
            )


def _verify_value(graph: Graph, index: int, value: Value) -> None:
    def fail(why: str) -> GraphError:
        return GraphError(f"value %{index} {value.name!r}: {why}")

    if value.id != index:
        raise fail(f"stands at place {index} but has id {value.id}")
    if len(value.shape) != len(value.strides):
        raise fail(f"shape {value.shape} and strides {value.strides} differ in length")
    if any(n < 0 for n in (*value.shape, *value.strides)) or value.offset < 0:
        raise fail(f"negative size, stride or offset: {value.type} at {value.offset}")
    if value.base is not None and value.overwrites is not None:
        raise fail("is both a view and a new version; a version must be a value of its own")
    for other in (value.base, value.overwrites):
        if other is None:
            continue
        if not 0 <= other < len(graph.values):
            raise fail(f"refers to %{other}, which does not exist")
        if other == index:
            raise fail("refers to itself")
        below = graph[other]
        if below.base is not None:
            raise fail(f"refers to %{other}, which is itself a view; refer to its base")
        if below.role is not value.role:
            raise fail(f"has role {value.role}, but the memory of %{other} has role {below.role}")
    if value.base is not None and value.offset + value.span > graph[value.base].span:
        raise fail(
            f"ends at byte {value.offset + value.span} of %{value.base}, "
            f"which has {graph[value.base].span}"
        )
    if value.overwrites is not None:
        if value.overwrites >= index:
            raise fail(f"overwrites %{value.overwrites}, which comes after it")
        if value.span > graph[value.overwrites].span or value.offset:
            raise fail(f"does not fit in the memory of %{value.overwrites}")
        if value.role in (Role.PARAMETER, Role.CONSTANT):
            raise fail(f"overwrites memory of role {value.role}")


def _verify_task(
    graph: Graph, task: Task, memory: _Memory, written: dict[int, int], index: int
) -> None:
    def fail(why: str) -> GraphError:
        return GraphError(f"task {index} {task.name!r} ({task.op}): {why}")

    for v in (*task.reads, *task.writes):
        if not 0 <= v < len(graph.values):
            raise fail(f"touches %{v}, which does not exist")
    named = {v for arg in (*task.args, *(a for _, a in task.kwargs)) for v in refs(arg)}
    if not named <= set(task.reads):
        raise fail(f"does not declare that it reads {sorted(named - set(task.reads))}")
    results = {v for v in task.results if v is not None}
    if not results <= set(task.writes):
        raise fail(f"does not declare that it writes {sorted(results - set(task.writes))}")
    unmade = {v for v in set(task.reads) - named if graph.content(v).id not in memory.made}
    for v in unmade | (set(task.writes) - results):
        if graph[v].dtype is not DType.TOKEN:
            raise fail(f"declares %{v}, which is neither an argument, a result nor a token")
    if len(set(task.writes)) != len(task.writes):
        raise fail("writes a value twice")
    for v in task.reads:
        if not memory.shows(v):
            raise fail(
                f"reads %{v} {graph[v].name!r}, which is not written yet or not there any more"
            )
    for v in task.writes:
        value = graph[v]
        if v in written:
            raise fail(f"writes %{v}, which task {written[v]} has already written")
        if (
            graph.content(v).overwrites is None
            and value.role not in _WRITABLE
            and value.dtype is not DType.TOKEN
        ):
            raise fail(f"writes %{v} {value.name!r}, whose role is {value.role}")
        written[v] = index
        memory.write(v)


class _Memory:
    """What the memory holds while the tasks run in their order."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._there = {
            v.id for v in graph.values if v.overwrites is None and v.role not in _WRITABLE
        }
        self.made: set[int] = set()
        """Contents that tasks have written, at least in part."""
        self._over: dict[int, list[int]] = {}
        """Contents → what was written over them, which may be parts of newer contents."""

    def shows(self, v: int) -> bool:
        """Whether a value's contents are there, and not written over."""
        value = self._graph[v]
        if value.span == 0 and value.dtype is not DType.TOKEN:
            return True  # Tasks need no order for the sake of no elements.
        content = self._graph.content(v).id
        return content in self._there and not any(
            self._overlap(v, other) for other in self._over.get(content, ())
        )

    def write(self, v: int) -> None:
        self._there.add(self._graph.content(v).id)
        self.made.add(self._graph.content(v).id)
        for below in older(self._graph, v):
            self._over.setdefault(below, []).append(v)

    def _overlap(self, a: int, b: int) -> bool:
        one, other = extent(self._graph, a), extent(self._graph, b)
        nothing = one.start == one.stop or other.start == other.stop  # An order token has no bytes.
        return nothing or one.overlaps(other)


def verify_memory(graph: Graph) -> None:
    """Raise GraphError unless all memory outside of the arena is bound by somebody, and what is
    handed out lies within it.

    Schedules need none of this; a replay, which gets its memory by these rules, does.
    """

    def fail(value: Value, why: str) -> GraphError:
        return GraphError(f"value %{value.id} {value.name!r}: {why}")

    if sorted(graph.inputs) != [v.id for v in graph.roots(Role.INPUT)]:
        raise GraphError(f"graph {graph.name!r}: its inputs are not its roots of role input")
    names: set[str] = set()
    for root in graph.roots(Role.PARAMETER, Role.CONSTANT, Role.STATE):
        if root.name in names:
            raise fail(root, "has the name, and so the memory, of another")
        names.add(root.name)
    for value in graph.values:
        if value.dtype is not DType.TOKEN and value.offset % value.dtype.itemsize:
            raise fail(value, f"starts at byte {value.offset}, inside of a {value.dtype}")
        if value.overwrites is not None and value.type != graph[value.overwrites].type:
            raise fail(value, f"is {value.type} in memory of {graph[value.overwrites].type}")
    for id in graph.outputs:
        value, home = graph[id], graph.home(id)
        if home.role is Role.INTERMEDIATE or value.dtype is DType.TOKEN:
            raise fail(value, f"is an output of role {home.role} and dtype {value.dtype}")
        if home.role is not Role.OUTPUT and value.dtype is not home.dtype:
            raise fail(value, f"is an output, and shows {home.type} as {value.type}")
    handed_out = {graph.home(id).id for id in graph.outputs}
    for root in graph.roots(Role.OUTPUT):
        if root.id not in handed_out:
            raise fail(root, "has role output, but no output shows it")
