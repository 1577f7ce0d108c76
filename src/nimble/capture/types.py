"""Do the operators of a graph give what its values say? For graphs that come from a file."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from nimble.capture.dtypes import TO_TORCH, from_symbol
from nimble.capture.operators import find
from nimble.capture.trace import unlogged
from nimble.errors import GraphError
from nimble.graph import Arg, DType, Graph, Ref, Symbol


def check_types(graph: Graph) -> None:
    """Run every task on fake tensors; raise GraphError if a result is of another type."""
    with FakeTensorMode(), torch.no_grad(), unlogged():
        for task in graph.tasks:
            args = [_fake(graph, arg) for arg in task.args]
            kwargs = {name: _fake(graph, arg) for name, arg in task.kwargs}
            try:
                result = find(task.op)(*args, **kwargs)
            except Exception as error:
                raise GraphError(f"task {task.name!r} ({task.op}) is malformed: {error}") from error
            results = list(result) if isinstance(result, list | tuple) else [result]
            made = [None if r is None else (r.dtype, tuple(r.shape)) for r in results]
            said = [None if v is None else _type(graph, v) for v in task.results]
            if made != said:
                raise GraphError(f"task {task.name!r} ({task.op}) gives {made}, not {said}")


def _type(graph: Graph, id: int) -> tuple[torch.dtype | None, tuple[int, ...]]:
    value = graph[id]
    return TO_TORCH.get(value.dtype), value.shape


def _fake(graph: Graph, arg: Arg) -> Any:
    if isinstance(arg, Ref):
        value = graph[arg.id]
        return torch.empty_strided(value.shape, value.strides, dtype=TO_TORCH[value.dtype])
    if isinstance(arg, tuple):
        return [_fake(graph, item) for item in arg]
    if isinstance(arg, DType):
        return TO_TORCH[arg]
    return from_symbol(arg) if isinstance(arg, Symbol) else arg
