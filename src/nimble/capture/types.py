"""Do the operators of a graph give what its values say? For graphs that come from a file."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from nimble.capture.dtypes import TO_TORCH, from_symbol
from nimble.capture.operators import CPU, find
from nimble.capture.trace import unlogged
from nimble.errors import GraphError
from nimble.graph import Arg, DType, Graph, Ref, Symbol


def check_types(graph: Graph, place: torch.device = CPU.device) -> None:
    """Run every task on fake tensors; raise GraphError if a result is of another type."""
    with FakeTensorMode(), torch.no_grad(), unlogged():
        for task in graph.tasks:
            args = [_fake(graph, arg, place) for arg in task.args]
            kwargs = {name: _fake(graph, arg, place) for name, arg in task.kwargs}
            try:
                result = find(task.op)(*args, **kwargs)
            except Exception as error:
                raise GraphError(f"task {task.name!r} ({task.op}) is malformed: {error}") from error
            results = list(result) if isinstance(result, list | tuple) else [result]
            made = [_made(r, place) for r in results]
            said = [None if v is None else _type(graph, v) for v in task.results]
            if made != said:
                raise GraphError(f"task {task.name!r} ({task.op}) gives {made}, not {said}")


def _made(result: Any, place: torch.device) -> tuple[torch.dtype, tuple[int, ...]] | None:
    """The type of a result; none for sizes, and for what is on another device."""
    if not isinstance(result, torch.Tensor) or result.device.type != place.type:
        return None
    return result.dtype, tuple(result.shape)


def _type(graph: Graph, id: int) -> tuple[torch.dtype | None, tuple[int, ...]]:
    value = graph[id]
    return TO_TORCH.get(value.dtype), value.shape


def _fake(graph: Graph, arg: Arg, place: torch.device) -> Any:
    if isinstance(arg, Ref):
        value = graph[arg.id]
        return torch.empty_strided(
            value.shape, value.strides, dtype=TO_TORCH[value.dtype], device=place
        )
    if isinstance(arg, tuple):
        return [_fake(graph, item, place) for item in arg]
    if isinstance(arg, DType):
        return TO_TORCH[arg]
    if isinstance(arg, Symbol):
        return place if arg.kind == "device" else from_symbol(arg)
    return arg
