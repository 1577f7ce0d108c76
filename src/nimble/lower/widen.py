"""Numbers in bfloat16 are computed with in float32, as the kernels do.

What the model itself converts to bfloat16 is rounded there, and so is whatever leaves the graph: an
output, a state, an operand of a task that takes bfloat16 as it is. Between operators numbers keep
the precision that they were computed in, and are nearer to the exact ones for that.
"""

from __future__ import annotations

from dataclasses import replace

from nimble.graph import Arg, DType, Edit, Graph, Ref, Role, Task, Value, fresh, is_dense
from nimble.graph.edit import call
from nimble.lower.heads.opening import MOVES
from nimble.rewrite import (
    fold_batch_norm,
    fold_constants,
    merge_subexpressions,
    remove_dead_tasks,
    remove_noops,
)
from nimble.rewrite.operators import pure_tasks

_NARROW, _WIDE = DType.BFLOAT16, DType.FLOAT32
_CONVERSION = "aten._to_copy.default"
_OF_THE_DTYPE = {"aten.nan_to_num.default"}
"""What they compute depends on the dtype: the largest number there is, say."""


def widen(graph: Graph) -> Graph:
    """The same graph, in float32 between its inputs and its outputs."""
    if not any(v.dtype is _NARROW for task in graph.tasks for v in _touched(graph, task)):
        return graph
    wide = _Widening(graph).done()
    for again in (remove_noops, merge_subexpressions, fold_constants, fold_batch_norm):
        wide = again(wide)
    return remove_dead_tasks(wide)


def _touched(graph: Graph, task: Task) -> list[Value]:
    return [graph[v] for v in (*task.reads, *task.writes)]


class _Widening:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._edit = Edit(graph)
        self._taken = {task.name for task in graph.tasks}
        self._odd = _seen_otherwise(graph)
        self._wide: dict[int, int] = {}
        """A value in bfloat16 → the same in float32."""
        self._narrow: set[int] = set()
        """Contents in bfloat16 that a task has written, or that were there before."""

    def done(self) -> Graph:
        graph = self._graph
        pure = pure_tasks(graph)
        written = {v for task in graph.tasks for v in task.writes}
        self._narrow = {v.id for v in graph.values if v.id not in written}
        for t, task in enumerate(graph.tasks):
            if t in pure and self._may_widen(task):
                self._widened(task)
            else:
                for v in task.reads:
                    self._narrowed(v, task.origin)
                self._edit.tasks.append(task)
                self._narrow.update(task.writes)
        for v in graph.outputs:
            self._narrowed(v, "")
        return self._edit.done()

    def _may_widen(self, task: Task) -> bool:
        touched = _touched(self._graph, task)
        if task.op == _CONVERSION and dict(task.kwargs).get("dtype") is _NARROW:
            return touched[0].dtype is _NARROW
        if task.op in _OF_THE_DTYPE or (task.op == _CONVERSION and not _is_real(touched[-1])):
            return False
        if task.op in MOVES and self._graph.content(touched[0].id).id not in self._wide:
            return False  # Rows are found in a table as it lies, and only they are widened.
        return (
            task.op.startswith("aten.")
            and any(value.dtype is _NARROW for value in touched)
            and not any(self._graph.content(value.id).id in self._odd for value in touched)
        )

    def _widened(self, task: Task) -> None:
        reads = {v: self._widely(v, task.origin) for v in task.reads}
        writes = {v: self._beside(v) for v in task.writes}
        ids = reads | writes
        self._edit.tasks.append(
            replace(
                task,
                args=tuple(_mapped(arg, ids) for arg in task.args),
                kwargs=tuple((name, _mapped(arg, ids)) for name, arg in task.kwargs),
                reads=tuple(dict.fromkeys(reads[v] for v in task.reads)),
                writes=tuple(writes[v] for v in task.writes),
                results=tuple(None if v is None else ids[v] for v in task.results),
            )
        )

    def _beside(self, root: int) -> int:
        """Where a task that wrote `root` writes in float32."""
        value = self._graph[root]
        if value.dtype is not _NARROW:
            self._narrow.add(root)
            return root
        self._wide[root] = self._edit.add_root(
            f"{value.name}.wide", Role.INTERMEDIATE, _WIDE, value.shape, value.strides
        )
        return self._wide[root]

    def _widely(self, v: int, origin: str) -> int:
        value, content = self._graph[v], self._graph.content(v)
        if value.dtype is not _NARROW:
            return v
        if v in self._wide:
            return self._wide[v]
        if v == content.id:
            self._wide[v] = self._converted(v, self._beside(v), _WIDE, origin)
        else:
            whole = self._widely(content.id, origin)
            offset = value.offset * _WIDE.itemsize // _NARROW.itemsize
            name = f"{value.name}.wide"
            self._wide[v] = self._edit.add_view(name, whole, value.shape, value.strides, offset)
        return self._wide[v]

    def _narrowed(self, v: int, origin: str) -> None:
        """See to it that a value is there in bfloat16 too."""
        content = self._graph.content(v)
        if content.id not in self._narrow:
            self._narrow.add(content.id)
            self._converted(self._wide[content.id], content.id, _NARROW, origin)

    def _converted(self, source: int, result: int, dtype: DType, origin: str) -> int:
        name = fresh(f"{self._edit.values[result].name}.{dtype}", self._taken)
        self._taken.add(name)
        kwargs: tuple[tuple[str, Arg], ...] = (("dtype", dtype),)
        self._edit.tasks.append(call(name, _CONVERSION, (Ref(source),), (result,), kwargs, origin))
        return result


def _is_real(value: Value) -> bool:
    return value.dtype in (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64)


def _mapped(arg: Arg, ids: dict[int, int]) -> Arg:
    if arg is _NARROW:
        return _WIDE
    if isinstance(arg, Ref):
        return Ref(ids[arg.id])
    return tuple(_mapped(item, ids) for item in arg) if isinstance(arg, tuple) else arg


def _seen_otherwise(graph: Graph) -> set[int]:
    """Contents whose bits are looked at in another dtype, or that have gaps."""
    odd = {v.id for v in graph.values if v.base is None and not is_dense(v)}
    for value in graph.values:
        if value.base is not None and value.dtype is not graph[value.base].dtype:
            odd.add(value.base)
    return odd
