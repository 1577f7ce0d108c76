"""What PyTorch says of the operator of a task: its arguments by name, and its kind."""

from __future__ import annotations

import functools

import torch

from nimble.capture.operators import find
from nimble.errors import UnsupportedOpError
from nimble.graph import Arg, DType, Graph, Ref, Role, Task


@functools.cache
def _schema(op: str) -> tuple[tuple[str, bool, Arg], ...]:
    """(name, whether there is a default, default) of every argument; empty for no operator."""
    try:
        found = find(op)
    except UnsupportedOpError:
        return ()
    return tuple(
        (a.name, a.has_default_value(), _plain(a.default_value)) for a in found._schema.arguments
    )


def arguments(task: Task) -> dict[str, Arg]:
    """The arguments of a task by the names in the operator's schema, defaults filled in."""
    schema = _schema(task.op)
    bound = {name: default for name, has_default, default in schema if has_default}
    bound.update(zip((name for name, _, _ in schema), task.args, strict=False))
    bound.update(task.kwargs)
    return bound


def _plain(default: object) -> Arg:
    if isinstance(default, list):
        return tuple(_plain(item) for item in default)
    return default if isinstance(default, bool | int | float | str) else None


@functools.cache
def is_pointwise(op: str) -> bool:
    """Whether each element of a result depends on one element of each operand, broadcast."""
    if op in _POINTWISE_WITHOUT_TAG:
        return True
    try:
        return torch.Tag.pointwise in find(op).tags
    except UnsupportedOpError:
        return False


def is_uninitialised(op: str) -> bool:
    """Whether the op returns memory as it happens to be."""
    return op.split(".")[1] in _UNINITIALISED


def pure_tasks(graph: Graph) -> frozenset[int]:
    """The tasks of which nothing is seen but their results.

    Not those that draw random numbers, write a state or an input, or write part of a value or a
    value that is written over later.
    """
    pieces = {graph[v].base for task in graph.tasks for v in task.writes}

    def whole(v: int) -> bool:
        value = graph[v]
        return (
            value.is_root
            and value.dtype is not DType.TOKEN
            and value.role in (Role.INTERMEDIATE, Role.OUTPUT)
            and graph.final(v) == v
            and v not in pieces
        )

    return frozenset(
        t
        for t, task in enumerate(graph.tasks)
        if task.writes
        and all(whole(v) for v in task.writes)
        and all(graph[v].dtype is not DType.TOKEN for v in task.reads)
    )


def written_by(graph: Graph, pure: frozenset[int], arg: Arg, op: str) -> dict[str, Arg] | None:
    """The arguments of the operator that wrote this, if it is this one, and pure."""
    writer = graph.writer.get(arg.id) if isinstance(arg, Ref) else None
    if writer is None or writer not in pure or graph.tasks[writer].op != op:
        return None
    return arguments(graph.tasks[writer])


_POINTWISE_WITHOUT_TAG = {
    "aten._to_copy.default",
    "aten.complex.default",
    "aten.hardswish.default",
    "aten.lift_fresh_copy.default",
    "aten.log_sigmoid_forward.default",
    "aten.polar.default",
}
_UNINITIALISED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
}
