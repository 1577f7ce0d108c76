"""Tensors filled with one number do not depend on the tensor that lent them its shape."""

from __future__ import annotations

from dataclasses import replace

from nimble.graph import DType, Edit, Graph, Symbol, Task

_NUMBER = {
    "aten.zeros_like.default": 0,
    "aten.ones_like.default": 1,
    "aten.new_zeros.default": 0,
    "aten.new_ones.default": 1,
}
_GIVEN = {"aten.full_like.default": 1, "aten.new_full.default": 2}
"""Which argument the number is."""


def free_fills(graph: Graph) -> Graph:
    """Turn `zeros_like(x)` and its kind into `full(shape, 0)`, which can be folded."""
    edit = Edit(graph)
    edit.tasks = [_freed(graph, task) for task in graph.tasks]
    return edit.done() if edit.tasks != list(graph.tasks) else graph


def _freed(graph: Graph, task: Task) -> Task:
    if task.op in _NUMBER:
        number: object = _NUMBER[task.op]
    elif task.op in _GIVEN and len(task.args) > _GIVEN[task.op]:
        number = task.args[_GIVEN[task.op]]
    else:
        return task
    if not isinstance(number, bool | int | float) or task.results[0] is None:
        return task
    made = graph[task.results[0]]
    number = bool(number) if made.dtype is DType.BOOL else number
    return replace(
        task,
        op="aten.full.default",
        args=(made.shape, number),
        kwargs=(("dtype", made.dtype), ("device", Symbol("device", "cpu"))),
        reads=(),
    )
