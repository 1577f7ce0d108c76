"""How a pass makes a new graph out of an old one: add, alias, drop, and number anew."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

from nimble.graph.ir import (
    Arg,
    DType,
    Graph,
    Role,
    Task,
    Value,
    contiguous_strides,
    map_refs,
    refs,
)


class Edit:
    """A graph being made: begins with the values and outputs of another, and with no tasks.

    The pass appends to `tasks` in a topological order what is to stay, changed or new, and calls
    `done`, which drops the values that nothing uses any more.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values = list(graph.values)
        self.tasks: list[Task] = []
        self.outputs = list(graph.outputs)
        self.prologue = graph.prologue
        self._above: dict[int, list[int]] = {}
        for value in graph.values:
            self._stand_on(value)

    def content(self, id: int) -> Value:
        """As `Graph.content`, for the values as they are by now."""
        value = self.values[id]
        return value if value.base is None else self.values[value.base]

    def add_root(
        self,
        name: str,
        role: Role,
        dtype: DType,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
    ) -> int:
        if strides is None:
            strides = contiguous_strides(shape)
        return self._add(Value(len(self.values), name, role, dtype, shape, strides))

    def add_view(
        self,
        name: str,
        of: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        offset: int = 0,
        dtype: DType | None = None,
    ) -> int:
        """A new view that begins `offset` bytes after `of` does."""
        whole, base = self.values[of], self.content(of)
        start = whole.offset + offset
        dtype = dtype or whole.dtype
        id = len(self.values)
        return self._add(Value(id, name, base.role, dtype, shape, strides, base.id, start))

    def alias(self, id: int, target: int) -> None:
        """Make the root `id` a view of what `target` shows; views of `id` follow.

        Both must have the same layout, so that every byte of `id` has its place in `target`.
        """
        base, offset = self.content(target), self.values[target].offset
        for view in (id, *self._above.pop(id, ())):
            value = self.values[view]
            moved = replace(value, base=base.id, offset=offset + value.offset, role=base.role)
            self.values[view] = moved
            self._stand_on(moved)

    def set_role(self, root: int, role: Role) -> None:
        """Give the memory of a root, which all its views and versions share, to another owner."""
        self.values[root] = replace(self.values[root], role=role)
        for above in self._above.get(root, ()):
            self.set_role(above, role)

    def done(self) -> Graph:
        """The new graph, where a view that shows all of its base as it is gives way to it."""
        same = {v.id: v.base for v in self.values if v.base is not None and self._shows_all(v)}
        return compact(
            Graph(
                self.graph.name,
                tuple(self.values),
                tuple(reading(task, same) for task in self.tasks),
                self.graph.inputs,
                tuple(same.get(v, v) for v in self.outputs),
                self.prologue,
            )
        )

    def _shows_all(self, view: Value) -> bool:
        base = self.content(view.id)
        return view.dtype is base.dtype and (view.shape, view.strides) == (base.shape, base.strides)

    def _add(self, value: Value) -> int:
        self.values.append(value)
        self._stand_on(value)
        return value.id

    def _stand_on(self, value: Value) -> None:
        for below in (value.base, value.overwrites):
            if below is not None:
                self._above.setdefault(below, []).append(value.id)


def call(
    name: str,
    op: str,
    args: tuple[Arg, ...],
    results: tuple[int | None, ...],
    kwargs: tuple[tuple[str, Arg], ...] = (),
    origin: str = "",
) -> Task:
    """A task that reads its arguments and writes its results, and touches nothing else."""
    reads = tuple(dict.fromkeys(refs((*args, *(arg for _, arg in kwargs)))))
    writes = tuple(v for v in results if v is not None)
    return Task(name, op, args, kwargs, reads, writes, results, origin=origin)


def reading(task: Task, ids: dict[int, int]) -> Task:
    """The task with values that it reads replaced by others."""
    if not any(v in ids for v in task.reads):
        return task
    return replace(
        task,
        args=tuple(map_refs(arg, ids) for arg in task.args),
        kwargs=tuple((name, map_refs(arg, ids)) for name, arg in task.kwargs),
        reads=tuple(dict.fromkeys(ids.get(v, v) for v in task.reads)),
    )


def compact(graph: Graph) -> Graph:
    """The graph without the values that nothing uses, the others numbered anew in their order.

    The roots of role input stay: they are what a call binds. Of a prologue stay the outputs that
    still fill a constant.
    """
    used = {*graph.inputs, *graph.outputs, *(v.id for v in graph.roots(Role.INPUT))}
    used.update(v for task in graph.tasks for v in (*task.reads, *task.writes))
    pending = list(used)
    while pending:
        value = graph[pending.pop()]
        below = {v for v in (value.base, value.overwrites) if v is not None} - used
        used |= below
        pending.extend(below)
    constants = {graph[v].name for v in used if graph[v].role is Role.CONSTANT}
    graph = replace(graph, prologue=fill_only(graph.prologue, constants))
    if len(used) == len(graph.values):
        return graph
    ids = {old: new for new, old in enumerate(sorted(used))}
    return replace(
        graph,
        values=tuple(
            replace(
                graph[old],
                id=new,
                base=_renumber(graph[old].base, ids),
                overwrites=_renumber(graph[old].overwrites, ids),
            )
            for old, new in ids.items()
        ),
        tasks=tuple(renumber(task, ids) for task in graph.tasks),
        inputs=tuple(ids[v] for v in graph.inputs),
        outputs=tuple(ids[v] for v in graph.outputs),
    )


def renumber(task: Task, ids: dict[int, int]) -> Task:
    """The task with all values that it touches replaced by `ids[id]`."""
    return replace(
        task,
        args=tuple(map_refs(arg, ids) for arg in task.args),
        kwargs=tuple((name, map_refs(arg, ids)) for name, arg in task.kwargs),
        reads=tuple(ids[v] for v in task.reads),
        writes=tuple(ids[v] for v in task.writes),
        results=tuple(None if v is None else ids[v] for v in task.results),
    )


def is_dense(value: Value) -> bool:
    """Whether the elements fill the value's bytes, each byte by one element only."""
    step = 1
    for stride, size in sorted(zip(value.strides, value.shape, strict=True)):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True


def even_step(shape: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
    """From element to element of dimensions that are walked as one, if it is always the same."""
    step, seen = 0, 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 1:
            continue
        if seen == 1:
            step = stride
        elif stride != step * seen:
            return None
        seen *= size
    return step


def fresh(name: str, taken: Container[str]) -> str:
    """The name itself, or the first of name_1, name_2, … that is not taken."""
    found, count = name, 0
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    return found


def _renumber(id: int | None, ids: dict[int, int]) -> int | None:
    return None if id is None else ids[id]


def fill_only(prologue: Graph | None, names: Iterable[str]) -> Graph | None:
    """The prologue without the outputs that fill none of the constants called `names`."""
    if prologue is None:
        return None
    outputs = tuple(v for v in prologue.outputs if prologue[v].name in names)
    if outputs == prologue.outputs:
        return prologue
    if not outputs:
        return None
    edit = Edit(prologue)
    edit.tasks, edit.outputs = list(prologue.tasks), list(outputs)
    for v in set(prologue.outputs) - set(outputs):
        edit.set_role(v, Role.INTERMEDIATE)
    return edit.done()
