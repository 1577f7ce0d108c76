"""A concatenation costs nothing where its operands are written into its slices to begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nimble.graph import Edit, Graph, Ref, Role, Task, Value, is_dense
from nimble.graph.edit import call
from nimble.lower.kernels import Supported
from nimble.lower.layout import counts_on_strides
from nimble.lower.views import moved
from nimble.rewrite.operators import arguments, pure_tasks

JOINING = ("aten.cat.default", "aten.stack.default")


def free_concatenations(graph: Graph, supported: Supported) -> Graph:
    """Replace `cat` by views: operands become slices of the result, copied only where they must.

    The last one goes first: a dense block's earlier concatenations are then views of its last.
    """
    pass_ = _Concatenations(graph, supported)
    for t in reversed(range(len(graph.tasks))):
        if t in pass_.pure and graph.tasks[t].op in JOINING:
            pass_.free(t)
    return pass_.done()


class _Concatenations:
    def __init__(self, graph: Graph, supported: Supported) -> None:
        self.pure = pure_tasks(graph)
        self._graph = graph
        self._edit = Edit(graph)
        self._supported = supported
        self._copies: dict[int, list[Task]] = {}
        self._shown = {graph.homes[v] for v in graph.outputs}
        self._views: dict[int, list[int]] = {}
        for value in graph.values:
            if value.base is not None:
                self._views.setdefault(value.base, []).append(value.id)
        self._readers: dict[int, list[Task]] = {}
        for task in graph.tasks:
            for v in task.reads:
                self._readers.setdefault(v, []).append(task)

    def free(self, t: int) -> None:
        task = self._graph.tasks[t]
        given = arguments(task)
        operands, whole = given["tensors"], self._edit.values[task.writes[0]]
        dim = given["dim"]
        if not isinstance(operands, tuple) or not isinstance(dim, int):
            return
        ids = [arg.id for arg in operands if isinstance(arg, Ref)]
        dim %= len(whole.shape)
        stacked = task.op == "aten.stack.default"
        strides = whole.strides[:dim] + whole.strides[dim + 1 :] if stacked else whole.strides
        if whole.numel == 0 or any(self._edit.values[v].dtype is not whole.dtype for v in ids):
            return
        ids = [v for v in ids if self._edit.values[v].numel]
        if not stacked and self._is_view_already(ids, whole, dim):
            self._copies[t] = []
            return
        copies, start = [], 0
        for place, v in enumerate(ids):
            part = self._edit.values[v]
            offset = start * whole.strides[dim] * whole.dtype.itemsize
            start += 1 if stacked else part.shape[dim]
            if ids.count(v) == 1 and self._place(v, whole.id, strides, offset):
                continue
            slice_ = self._edit.add_view(
                f"{whole.name}.{place}", whole.id, part.shape, strides, offset
            )
            name = f"{task.name}.{place}"
            copies.append(call(name, "nimble.copy", (Ref(v),), (slice_,), (), task.origin))
        self._copies[t] = copies

    def _place(self, v: int, whole: int, strides: tuple[int, ...], offset: int) -> bool:
        """Make a root a slice of the result, views of it included."""
        edit, graph = self._edit, self._graph
        part = edit.values[v]
        writer = graph.writer.get(v)
        if writer is None or writer not in self.pure or part.base is not None:
            return False
        if part.role is not Role.INTERMEDIATE or v in self._shown or not is_dense(part):
            return False
        slice_ = replace(part, strides=strides)
        if not self._can_run(graph.tasks[writer], [slice_]):
            return False
        above = [moved(edit.values[a], part, strides) for a in self._views.get(v, ())]
        found = [view for view in above if view is not None]
        if len(found) < len(above) or not self._can_be_read([slice_, *found]):
            return False
        for value in (slice_, *found):
            edit.values[value.id] = value
        edit.alias(v, whole)
        self._shift(v, found, offset)
        return True

    def _shift(self, v: int, views: list[Value], offset: int) -> None:
        for id in (v, *(view.id for view in views)):
            value = self._edit.values[id]
            self._edit.values[id] = replace(value, offset=value.offset + offset)

    def _is_view_already(self, ids: list[int], whole: Value, dim: int) -> bool:
        """Where the operands lie side by side in another buffer, the result is a view of that."""
        edit = self._edit
        parts = [edit.values[v] for v in ids]
        if whole.base is not None or whole.role is not Role.INTERMEDIATE or not parts:
            return False
        first = parts[0]
        if whole.id in self._shown or first.base is None or not is_dense(whole):
            return False
        at = first.offset
        for part in parts:
            if part.base != first.base or part.strides != first.strides or part.offset != at:
                return False
            at += part.shape[dim] * part.strides[dim] * part.dtype.itemsize
        above = [moved(edit.values[a], whole, first.strides) for a in self._views.get(whole.id, ())]
        found = [view for view in above if view is not None]
        changed = [replace(whole, strides=first.strides), *found]
        if len(found) < len(above) or not self._can_be_read(changed):
            return False
        for value in changed:
            edit.values[value.id] = value
        edit.alias(whole.id, first.base)
        self._shift(whole.id, found, first.offset)
        return True

    def _can_be_read(self, changed: Sequence[Value]) -> bool:
        """Whether all who read these values can do with their new strides."""
        readers = [task for value in changed for task in self._readers.get(value.id, ())]
        return not any(counts_on_strides(task.op) for task in readers) and all(
            self._can_run(task, changed) for task in readers
        )

    def _can_run(self, task: Task, changed: Sequence[Value]) -> bool:
        """Whether the kernel of a task can do with these values."""
        if not task.op.startswith("nimble."):
            return True
        values = {v: self._edit.values[v] for v in (*task.reads, *task.writes)}
        return self._supported(values | {value.id: value for value in changed}, task)

    def done(self) -> Graph:
        for t, task in enumerate(self._graph.tasks):
            self._edit.tasks.extend(self._copies.get(t, [task]))
        return self._edit.done()
