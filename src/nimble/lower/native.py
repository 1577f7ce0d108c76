"""Choose a hand-written kernel for a task where there is one that gives the same bits as ATen."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from nimble.graph import DType, Graph, Ref, Task, contiguous_strides

_BINARY = {
    "aten.add.Tensor": "add",
    "aten.sub.Tensor": "sub",
    "aten.mul.Tensor": "mul",
    "aten.div.Tensor": "div",
}
_UNARY = {"aten.relu.default": "relu"}


def choose_native_kernels(graph: Graph, available: Set[str]) -> Graph:
    """The graph with `Task.kernel` set to `native.<name>` wherever a native kernel fits.

    `available` are the names that the device offers (`nimble._core.native_kernels()`).
    """

    def chosen(task: Task) -> Task:
        name = _native(graph, task)
        if name is None or name not in available:
            return task
        return replace(task, kernel=f"native.{name}")

    return graph.with_tasks(chosen(task) for task in graph.tasks)


def _native(graph: Graph, task: Task) -> str | None:
    """The native kernel that computes exactly this task: same dtype, same shape, no gaps."""
    name = _BINARY.get(task.op) or _UNARY.get(task.op)
    operands = 2 if task.op in _BINARY else 1
    if name is None or task.kwargs or len(task.args) != operands:
        return None
    if not all(isinstance(arg, Ref) for arg in task.args):
        return None
    values = [graph[v] for v in (*task.writes, *(a.id for a in task.args if isinstance(a, Ref)))]
    first = values[0]
    if first.dtype not in (DType.FLOAT32, DType.FLOAT64) or first.numel == 0:
        return None
    if any((v.dtype, v.shape) != (first.dtype, first.shape) for v in values):
        return None
    if any(v.strides != contiguous_strides(v.shape) for v in values):
        return None
    return f"{name}.{first.dtype}"
