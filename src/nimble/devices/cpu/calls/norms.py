"""Normalisation over the last dimension, or over groups of channels."""

from __future__ import annotations

import math

from nimble.devices.cpu.calls.call import Given, Make, NativeCall, in_line
from nimble.devices.cpu.geometry import matrix, pixels
from nimble.devices.cpu.programs import end_of, epilogue
from nimble.graph import Ref, Task, Value, even_step, refs
from nimble.lower import Values


def _last(graph: Values, task: Task, given: Given) -> NativeCall | None:
    """Layer norm and RMS norm."""
    x, weight, bias = task.args[:3]
    assert isinstance(x, Ref)
    y, *statistics = task.writes
    source, result = graph[x.id], graph[y]
    length = source.shape[-1]
    end = end_of(given, adds=False, clamps=False)
    count = source.numel // length
    tail = epilogue(graph, end, lambda value: matrix(value, count, length))
    outer = source.shape[:-1]
    if tail is None or len(outer) > 5 or result.shape != source.shape:
        return None
    if result.strides[-1] != 1 or source.strides[-1] != 1 or not in_line(graph, weight, bias):
        return None
    ints = [length, int(weight is not None), int(bias is not None), len(outer), *outer]
    ints += [*result.strides[:-1], *source.strides[:-1]]
    kernel = task.op.removeprefix("nimble.")
    if statistics:
        ints += graph[statistics[0]].strides[:-1]
        kernel += "_with_statistics"
    operands = [y, *statistics, x.id, *(arg.id for arg in (weight, bias) if isinstance(arg, Ref))]
    return NativeCall(
        f"{kernel}.float32", (*operands, *end.extras), (*ints, *tail[0]),
        (float(given["eps"]), *tail[1]),
    )  # fmt: skip


def _gradient(graph: Values, task: Task, given: Given) -> NativeCall | None:
    """Of what a layer norm read."""
    gradient, x, mean, *rest = refs(task.args)
    (result,) = task.writes
    ints = _rows(graph, (result, gradient, x), mean)
    if ints is None or not in_line(graph, *task.args[4:]):
        return None
    ints = [graph[x].shape[-1], len(rest) - 1, *ints]
    operands = (result, gradient, x, mean, *rest)
    return NativeCall("layer_norm_gradient.float32", operands, tuple(ints))


def _sums(graph: Values, task: Task, given: Given) -> NativeCall | None:
    """The gradients of weight and bias."""
    gradient, x, mean, deviation = refs(task.args)
    ints = _rows(graph, (gradient, x), mean)
    if ints is None or any(graph[v].strides != (1,) for v in task.writes):
        return None
    asked = [int(result is not None) for result in task.results]
    ints = [graph[x].shape[-1], *asked, *ints]
    operands = (*task.writes, gradient, x, mean, deviation)
    return NativeCall("layer_norm_sums.float32", operands, tuple(ints))


def _rows(graph: Values, matrices: tuple[int, ...], statistics: int) -> list[int] | None:
    """How rows of these follow each other."""
    outer = graph[matrices[0]].shape[:-1]
    if len(outer) > 5 or any(graph[v].strides[-1] != 1 for v in matrices):
        return None
    ints = [len(outer), *outer]
    for v in (*matrices, statistics):
        ints += graph[v].strides[:-1]
    return ints


_MOST_CHANNELS = 4096


def _groups(graph: Values, task: Task, given: Given) -> NativeCall | None:
    """Over groups of channels, whether those lie innermost or not."""
    x, weight, bias = task.args[:3]
    assert isinstance(x, Ref)
    y = task.writes[0]
    source, result = graph[x.id], graph[y]
    batch, channels, *space = source.shape
    count = math.prod(space)
    steps = [even_step(value.shape[2:], value.strides[2:]) for value in (result, source)]
    if result.shape != source.shape or None in steps or not in_line(graph, weight, bias):
        return None
    planes = count == 1 or steps == [1, 1]
    innermost = channels == 1 or (source.strides[1] == result.strides[1] == 1)
    end = end_of(given, adds=False, clamps=False)
    if innermost and channels <= _MOST_CHANNELS:
        tail = epilogue(graph, end, lambda value: pixels(value, result))
        across = steps
    elif planes and channels <= _MOST_CHANNELS:
        tail = epilogue(graph, end, lambda value: _of_plane(value, result))
        across = [value.strides[1] for value in (result, source)]
    else:
        return None
    if tail is None:
        return None
    ints = [batch, channels, count, given["groups"]]
    for value, step in zip((result, source), across, strict=True):
        assert step is not None
        ints += [value.strides[0], step]
    ints += [int(weight is not None), int(bias is not None)]
    operands = [y, x.id] + [arg.id for arg in (weight, bias) if isinstance(arg, Ref)]
    kernel = "group_norm_nhwc.float32" if innermost else "group_norm.float32"
    floats = (float(given["eps"]), *tail[1])
    return NativeCall(kernel, (*operands, *end.extras), (*ints, *tail[0]), floats)


def _of_plane(value: Value, like: Value) -> tuple[int, int] | None:
    """The strides of an operand of the tail, from plane to plane and inside of one."""
    if value.numel == 1:
        return 0, 0
    if value.shape != like.shape:
        return None
    down = even_step(value.shape[:2], value.strides[:2])
    across = even_step(value.shape[2:], value.strides[2:])
    return None if down is None or across is None else (down, across)


CALLS: dict[str, Make] = {
    "nimble.group_norm": _groups,
    "nimble.layer_norm": _last,
    "nimble.layer_norm_gradient": _gradient,
    "nimble.layer_norm_sums": _sums,
    "nimble.rms_norm": _last,
}
