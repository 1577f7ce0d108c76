"""What moves elements and computes nothing."""

from __future__ import annotations

import math

from nimble.devices.cpu.calls.call import Given, Make, NativeCall
from nimble.graph import DType, Task, even_step, refs
from nimble.lower import Values


def _copy(graph: Values, task: Task, given: Given) -> NativeCall | None:
    (x,) = refs(task.args)
    y = task.writes[0]
    source, result = graph[x], graph[y]
    if source.dtype.itemsize not in (1, 2, 4, 8) or len(result.shape) > 6:
        return None
    ints = [source.dtype.itemsize, len(result.shape), *result.shape]
    steps, start = list(result.strides), 0
    for dim in given.get("flip", ()):
        start += steps[dim] * (result.shape[dim] - 1)
        steps[dim] = -steps[dim]
    return NativeCall("copy_strided", (y, x), (*ints, *steps, *source.strides, start))


def _pad(graph: Values, task: Task, given: Given) -> NativeCall | None:
    (x,) = refs(task.args)
    y = task.writes[0]
    source, result = graph[x], graph[y]
    if source.dtype is not DType.FLOAT32 or not 1 <= len(result.shape) <= 6:
        return None
    # The kernel goes along the last dimension: let that be the one whose elements lie closest.
    order = sorted(range(len(result.shape)), key=lambda d: -result.strides[d])
    ints = [len(order)]
    for each in (result.shape, given["before"], source.shape, result.strides, source.strides):
        ints += [each[d] for d in order]
    return NativeCall("pad.float32", (y, x), tuple(ints), (given["value"],))


def _gather(graph: Values, task: Task, given: Given) -> NativeCall | None:
    """out[outer, i, row] = table[outer, indices[i], row]."""
    table, indices = refs(task.args)
    source, result, dim = graph[table], graph[task.writes[0]], given["dim"]
    count = graph[indices].numel
    after = dim + len(graph[indices].shape)
    length = math.prod(source.shape[dim + 1 :])
    steps = [
        even_step(source.shape[:dim], source.strides[:dim]),
        even_step(source.shape[dim + 1 :], source.strides[dim + 1 :]),
        even_step(result.shape[:dim], result.strides[:dim]),
        even_step(result.shape[dim:after], result.strides[dim:after]),
        even_step(result.shape[after:], result.strides[after:]),
    ]
    if source.dtype.itemsize not in (1, 2, 4, 8):
        return None
    if any(step is None for step in steps) or (length > 1 and not steps[1] == steps[4] == 1):
        return None
    outer, _, out_outer, out_row, _ = (step or 0 for step in steps)
    ints = (
        source.dtype.itemsize, math.prod(source.shape[:dim]), count, length, source.shape[dim],
        out_outer, out_row, outer, source.strides[dim], 0, 1, int(given["wraps"]),
    )  # fmt: skip
    return NativeCall("gather_rows", (task.writes[0], table, indices), ints)


def _scatter(graph: Values, task: Task, given: Given) -> NativeCall | None:
    """The gradient of rows [first, first + …) of a table."""
    gradient, indices = refs(task.args)
    result = graph[task.writes[0]]
    if result.dtype is not DType.FLOAT32 or result.strides[1] != 1:
        return None
    rows, length = result.shape
    ints = (
        graph[indices].numel, length, given["rows"], rows, given["first"], given["skipped"],
        result.strides[0], length,
    )  # fmt: skip
    return NativeCall("scatter_rows.float32", (task.writes[0], gradient, indices), ints)


CALLS: dict[str, Make] = {
    "nimble.copy": _copy,
    "nimble.gather": _gather,
    "nimble.pad": _pad,
    "nimble.scatter": _scatter,
}
