"""Proves that the rows of a batch do not depend on each other, so that requests may share one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from nimble.graph import Arg, DType, Graph, Ref, Role, Task, Value, refs
from nimble.rewrite.axes import Axes, axes_of


@dataclass(frozen=True, slots=True)
class _Shared:
    """Contents that no row of the inputs changes; `uniform` where all elements are equal."""

    uniform: bool = False


@dataclass(frozen=True, slots=True)
class _Rows:
    """Contents whose byte m depends on row `m // step % batch` only, alike for every row."""

    step: int


@dataclass(frozen=True, slots=True)
class _Mixed:
    """Contents of which nothing is proven, and why."""

    why: str


_State: TypeAlias = "_Shared | _Rows | _Mixed"


@dataclass(frozen=True, slots=True)
class _Along:
    """Where a tensor's rows lie: index i of dimension `dim` belongs to row `i // inner % batch`."""

    dim: int
    inner: int


class _UnprovenError(Exception):
    """Why a task's results are not proven."""


def dependent_rows(graph: Graph, batch: int) -> str | None:
    """Why a row of the outputs may depend on other rows of the inputs; None if it cannot.

    Rows are the parts along dimension 0 of every output, and of every input that has `batch` of
    them; other inputs are shared by all rows, as parameters are. None also means that all rows are
    treated alike: inputs permuted give outputs permuted.
    """
    if batch < 2:
        return f"a batch of {batch} does not show which dimensions hold rows; capture with 2 rows"
    for task in graph.tasks:
        if any(graph[v].dtype is DType.TOKEN for v in (*task.reads, *task.writes)):
            return f"{_named(task)} draws random numbers, which differ from row to row"
        if not all(graph[v].is_root for v in task.writes):
            return f"{_named(task)} writes to memory that other calls or tasks read"
    rows = _Analysis(graph, batch)
    return next((why for v in graph.outputs if (why := rows.output(v))), None)


class _Analysis:
    """The state of every content of a graph, found by one walk over its tasks."""

    def __init__(self, graph: Graph, batch: int) -> None:
        self._graph, self._batch = graph, batch
        filled = {} if graph.prologue is None else _Analysis(graph.prologue, batch).outputs()
        self._states: dict[int, _State] = {}
        for root in graph.roots():
            self._states[root.id] = _Shared()
            if root.role is Role.CONSTANT:
                self._states[root.id] = filled.get(root.name, _Shared())
            elif root.role is Role.INPUT and root.shape[:1] == (batch,):
                self._states[root.id] = self._hold(root, _Along(0, 1))
        for task in graph.tasks:
            self._states.update(self._results(task))

    def outputs(self) -> dict[str, _State]:
        return {self._graph[v].name: self._states[v] for v in self._graph.outputs}

    def output(self, v: int) -> str | None:
        """Why the rows of an output are not proven independent, None if they are."""
        value = self._graph[v]
        try:
            along = self._along(v, "the caller")
        except _UnprovenError as why:
            return str(why)
        is_batch = value.shape[:1] == (self._batch,)
        if is_batch and (along == _Along(0, 1) or (along is None and not self._varies(v, 0))):
            return None
        return f"output {value.name} ({value.type}) does not hold one row per row of the inputs"

    def _results(self, task: Task) -> dict[int, _State]:
        results = [v for v in task.results if v is not None]
        if task.op.split(".")[1] in _UNIFORM or task.op == "aten.fill.Scalar":
            return dict.fromkeys(results, _Shared(uniform=True))
        axes = axes_of(self._graph, task) or Axes((), ())
        try:
            for v in set(task.reads) - {v for v, _ in axes.operands} - set(axes.unread):
                if self._along(v, _named(task)) is not None:
                    raise _UnprovenError(f"{_named(task)} is not known to keep rows apart")
            carried = self._carried(task, axes)
        except _UnprovenError as why:
            return dict.fromkeys(results, _Mixed(str(why)))
        if carried is None:
            return dict.fromkeys(results, _Shared())
        label, inner, size = carried
        found: dict[int, _State] = {}
        for v, labels in zip(results, axes.results, strict=True):
            value, dim = self._graph[v], labels.index(label) if label in labels else None
            if dim is None or value.shape[dim] != size:
                found[v] = _Mixed(f"{_named(task)} does not keep rows apart in {value.name}")
            else:
                found[v] = self._hold(value, _Along(dim, inner))
        return found

    def _carried(self, task: Task, axes: Axes) -> tuple[int, int, int] | None:
        """Label, `inner` and size of the dimension along which the results hold rows, if any."""
        rows = [(v, labels, self._along(v, _named(task))) for v, labels in axes.operands]
        found: dict[tuple[int, int, int], str] = {}
        for v, labels, along in rows:
            if along is not None:
                value, label = self._graph[v], labels[along.dim]
                if label is None:
                    raise _UnprovenError(f"{_named(task)} mixes the rows of {value.name}")
                found[label, along.inner, value.shape[along.dim]] = value.name
        if len(found) > 1:
            raise _UnprovenError(
                f"{_named(task)} pairs different rows of {' and '.join(found.values())}"
            )
        carried = next(iter(found), None) or self._same_for_all(task, axes)
        for v, labels, along in rows:
            dims = [d for d, label in enumerate(labels) if carried and label == carried[0]]
            if along is None and any(self._varies(v, d) for d in dims):
                if not found:
                    return None
                name = self._graph[v].name
                raise _UnprovenError(f"{_named(task)} reads another part of {name} for each row")
        return carried

    def _same_for_all(self, task: Task, axes: Axes) -> tuple[int, int, int] | None:
        """Of a task that reads no rows: where its first result may hold one row over and over."""
        first = self._graph[task.writes[0]]
        label = axes.results[0][0] if axes.operands and first.shape[:1] == (self._batch,) else None
        return None if label is None else (label, 1, self._batch)

    def _varies(self, v: int, dim: int) -> bool:
        """Whether contents that no row changes may still differ along a dimension."""
        state, value = self._states[self._graph.content(v).id], self._graph[v]
        return state != _Shared(uniform=True) and value.shape[dim] > 1 and value.strides[dim] != 0

    def _hold(self, root: Value, along: _Along) -> _State:
        """The state of memory whose owner holds rows along a dimension."""
        step = root.strides[along.dim] * root.dtype.itemsize * along.inner
        if self._locate(root, step) == along:
            return _Rows(step)
        return _Mixed(f"the rows of {root.name} ({root.type}) overlap in memory")

    def _along(self, v: int, reader: str) -> _Along | None:
        """Where the rows of a value lie; None if no row changes it."""
        value, state = self._graph[v], self._states[self._graph.content(v).id]
        if isinstance(state, _Mixed):
            raise _UnprovenError(state.why)
        if isinstance(state, _Shared) or value.numel == 0:
            return None
        along = self._locate(value, state.step)
        if along is None:
            raise _UnprovenError(
                f"{reader} reads {value.name} ({value.type}), in which not all rows lie in order "
                "along one dimension"
            )
        return along

    def _locate(self, value: Value, step: int) -> _Along | None:
        """Where rows lie in a value whose memory holds one every `step` bytes, over and over.

        Steps along other dimensions must either pass over whole batches, or add up to less than
        what is between two indices of the dimension that holds the rows.
        """
        along, width, period = None, step, step * self._batch
        reach = value.offset % period + value.dtype.itemsize if period else 0
        for dim, (size, stride) in enumerate(zip(value.shape, value.strides, strict=True)):
            bytes = stride * value.dtype.itemsize
            if size == 1 or not period or bytes % period == 0:
                continue
            if along is None and step % bytes == 0 and size * bytes % period == 0:
                along, width = _Along(dim, step // bytes), bytes
            else:
                reach += (size - 1) * bytes
        return along if reach <= width else None


def _named(task: Task) -> str:
    return f"task {task.name} ({task.op})"


_UNIFORM = {
    "full",
    "full_like",
    "new_full",
    "new_ones",
    "new_zeros",
    "ones",
    "ones_like",
    "scalar_tensor",
    "zeros",
    "zeros_like",
}


def different_tasks(one: Graph, other: Graph, rows: int, others: int) -> str | None:
    """Where captures with `rows` and `others` rows differ in more than the number of rows of
    tensors: then that number was computed with. None if nowhere."""
    if [t.op for t in one.tasks] != [t.op for t in other.tasks]:
        return "with another number of rows the model runs other tasks"
    same = _Same(one, other, rows, others)
    for mine, theirs in zip(one.tasks, other.tasks, strict=True):
        if _numbers(mine) != _numbers(theirs):
            return f"task {mine.name!r} ({mine.op}) uses the number of rows in its computation"
        if not same.reads(_operands(mine), _operands(theirs)):
            return f"task {mine.name!r} ({mine.op}) takes a part that depends on how many rows"
        if not same.writes(mine.writes, theirs.writes):
            return f"task {mine.name!r} ({mine.op}) gives something else than rows more"
    if not same.reads(one.outputs, other.outputs):
        return "a result is a part that depends on the number of rows"
    for a, b in zip((one[v] for v in one.outputs), (other[v] for v in other.outputs), strict=True):
        if (a.shape[:1], b.shape[:1]) != ((rows,), (others,)):
            return f"result {a.name} ({a.type}) has not a row for each row of the inputs"
        if any(n > 1 and s != t for n, s, t in zip(b.shape, a.strides, b.strides, strict=True)):
            return f"result {a.name} ({a.type}) is laid out by the number of rows"
    return None


def not_fresh(graph: Graph) -> str | None:
    """Which output shows memory of the caller or of the model, which a part of a larger batch
    would not. None if none does."""
    for value in map(graph.__getitem__, graph.outputs):
        if graph.content(value.id).role not in (Role.INTERMEDIATE, Role.OUTPUT):
            return f"result {value.name} ({value.type}) is, or is a view of, an input or a weight"
    return None


class _Same:
    """Which values of two graphs are the same but for the number of rows."""

    def __init__(self, one: Graph, other: Graph, rows: int, others: int) -> None:
        self._one, self._other, self._rows, self._others = one, other, rows, others
        named = {root.name: root.id for root in other.roots()}
        self._pairs = {root.id: named.get(root.name) for root in one.roots()}

    def reads(self, mine: Sequence[int], theirs: Sequence[int]) -> bool:
        return len(mine) == len(theirs) and all(
            self._pairs[self._one.content(a).id] == self._other.content(b).id
            and self._alike(self._one[a], self._other[b])
            for a, b in zip(mine, theirs, strict=True)
        )

    def writes(self, mine: Sequence[int], theirs: Sequence[int]) -> bool:
        self._pairs.update(zip(mine, theirs, strict=False))
        return self.reads(mine, theirs)

    def _alike(self, a: Value, b: Value) -> bool:
        """Whether two values differ at most in one dimension, by the number of rows."""
        if len(a.shape) != len(b.shape) or a.offset != b.offset or a.dtype is not b.dtype:
            return False
        differ = [(n, m) for n, m in zip(a.shape, b.shape, strict=True) if n != m]
        steps = [
            (s, t)
            for n, m, s, t in zip(a.shape, b.shape, a.strides, b.strides, strict=True)
            if s != t and n > 1 and m > 1
        ]
        scaled = all(n * self._others == m * self._rows for n, m in (*differ, *steps))
        return len(differ) < 2 and scaled


def _operands(task: Task) -> list[int]:
    return [v for arg in (*task.args, *(arg for _, arg in task.kwargs)) for v in refs(arg)]


_MADE = ("aten.full.", "aten.zeros.", "aten.ones.", "aten.empty.")


def _numbers(task: Task) -> Arg:
    """The arguments of a task without the values in them, and without the sizes of what it makes,
    which its results show."""

    def strip(arg: Arg) -> Arg:
        if isinstance(arg, tuple):
            return tuple(strip(item) for item in arg)
        return None if isinstance(arg, Ref) else arg

    args = task.args[1:] if task.op.startswith(_MADE) else task.args
    return strip((*args, *(arg for _, arg in task.kwargs)))
