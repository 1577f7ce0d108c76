"""Runs a graph with PyTorch, one task after the other: what every engine must equal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from nimble.graph import Arg, DType, Graph, Ref, Symbol, Task, Value


def run(
    graph: Graph, tensors: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor] = ()
) -> tuple[torch.Tensor, ...]:
    """The outputs of a graph. `tensors` holds parameters, constants and states by name."""
    held = dict(tensors)
    if graph.prologue is not None:
        names = (graph.prologue[v].name for v in graph.prologue.outputs)
        held.update(zip(names, run(graph.prologue, tensors), strict=True))
    memory = _Memory(graph)
    for v, tensor in zip(graph.inputs, inputs, strict=True):
        memory.bind(graph[v], tensor)
    for root in graph.roots():
        written = root.id in graph.writer or root.dtype is DType.TOKEN
        if not written and root.id not in graph.inputs:
            memory.bind(root, held[root.name])
    for task in graph.tasks:
        memory.execute(task)
    return tuple(memory.tensor(v) for v in graph.outputs)


class _Memory:
    """The storage of every root, and the byte of it at which the root begins."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.storage: dict[int, tuple[torch.UntypedStorage, int]] = {}

    def bind(self, root: Value, tensor: torch.Tensor) -> None:
        came = (tensor.dtype, tensor.shape, tensor.stride())
        assert came == (dtype(root), root.shape, root.strides), (root, came)
        first = int(tensor.storage_offset()) * tensor.itemsize
        self.storage[root.id] = tensor.untyped_storage(), first

    def tensor(self, id: int) -> torch.Tensor:
        value, home = self.graph[id], self.graph.homes[id]
        if home not in self.storage:
            span = self.graph[home].span
            self.storage[home] = torch.empty(span, dtype=torch.uint8).untyped_storage(), 0
        storage, first = self.storage[home]
        place = (first + value.offset) // value.dtype.itemsize
        return torch.empty(0, dtype=dtype(value)).set_(storage, place, value.shape, value.strides)

    def execute(self, task: Task) -> None:
        args = [argument(arg, self.tensor) for arg in task.args]
        kwargs = {name: argument(arg, self.tensor) for name, arg in task.kwargs}
        returned = flat(operator(task.op)(*args, **kwargs))
        for v, result in zip(task.results, returned, strict=True):
            if v is not None:
                value = self.graph[v]
                came = (result.dtype, result.shape)
                assert came == (dtype(value), value.shape), (task, value, came)
                self.tensor(v).copy_(result)


def dtype(value: Value) -> torch.dtype:
    found = getattr(torch, value.dtype.value)
    assert isinstance(found, torch.dtype)
    return found


def operator(op: str) -> Callable[..., Any]:
    namespace, name, overload = op.split(".")
    found: Callable[..., Any] = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    return found


def argument(arg: Arg, tensor: Callable[[int], torch.Tensor]) -> object:
    """An argument as PyTorch takes it."""
    if isinstance(arg, Ref):
        return tensor(arg.id)
    if isinstance(arg, tuple):
        return [argument(item, tensor) for item in arg]
    if isinstance(arg, DType):
        return getattr(torch, arg.value)
    if isinstance(arg, Symbol):
        return torch.device(arg.name) if arg.kind == "device" else getattr(torch, arg.name)
    return arg


def flat(returned: object) -> tuple[torch.Tensor, ...]:
    """The tensors that an operator returns, in order."""
    if isinstance(returned, torch.Tensor):
        return (returned,)
    assert isinstance(returned, list | tuple)
    return tuple(tensor for item in returned for tensor in flat(item))
