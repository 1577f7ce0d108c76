"""A lowered task as the call of a native kernel: its operands and numbers, in the kernel's order.

native/kernels/README.md says what each kernel takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nimble.devices.cpu.geometry import broadcast, down_of, image, matrix, pixels
from nimble.devices.cpu.programs import DTYPES, End, end_of, epilogue, instructions
from nimble.graph import DType, Ref, Task, Value, refs
from nimble.lower import Values
from nimble.lower.heads import is_image

_MOST_ROWS_OF_LINEAR = 12
_NOWHERE = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class NativeCall:
    """Operands are values, results first."""

    kernel: str
    operands: tuple[int, ...]
    ints: tuple[int, ...]
    floats: tuple[float, ...] = ()


def supported(values: Values, task: Task) -> bool:
    return native_call(values, task) is not None


def native_call(graph: Values, task: Task) -> NativeCall | None:
    """The call that computes a `nimble.` task, or None if no kernel can."""
    make = _CALLS.get(task.op)
    return make(graph, task, dict(task.kwargs)) if make is not None else None


def _pointwise(graph: Values, task: Task, given: dict[str, Any]) -> NativeCall | None:
    inputs, steps, outputs = given["program"]
    shape = graph[task.writes[0]].shape
    results = [v for v in task.results if v is not None]
    sources = [v for arg in task.args for v in refs(arg)]
    if len(shape) > 6 or graph[results[0]].numel == 0:
        return None
    ints = [len(results), len(sources), len(shape), *shape]
    for v in (*results, *sources):
        if graph[v].dtype not in DTYPES:
            return None
        ints += [DTYPES[graph[v].dtype], *broadcast(graph[v], shape)]
    code, floats = instructions(steps, inputs, outputs)
    return NativeCall("pointwise.float32", (*results, *sources), (*ints, *code), tuple(floats))


def _convolution(graph: Values, task: Task, given: dict[str, Any]) -> NativeCall | None:
    x, weight, bias = task.args[:3]
    assert isinstance(x, Ref)
    assert isinstance(weight, Ref)
    y = task.writes[0]
    source, result = graph[x.id], graph[y]
    if not is_image(source) or not is_image(result):
        return None
    depthwise = task.op == "nimble.depthwise"
    groups = given["groups"]
    out = 1 if depthwise else result.shape[1] // groups
    panels = -(-(groups if depthwise else out) // 16)
    end = end_of(given)
    added = _NOWHERE
    if end.added is not None:
        plus = graph[end.added]
        if plus.shape != result.shape or not is_image(plus):
            return None
        added = image(plus)
    tail = epilogue(graph, end, lambda value: pixels(value, result))
    if tail is None:
        return None
    ints = [
        source.shape[0], source.shape[2], source.shape[3], 0, result.shape[2], result.shape[3],
        groups, source.shape[1] // groups, out, 0, panels,
        *(graph[weight.id].strides[:1] if depthwise else ()), *given["kernel"], *given["stride"],
        *given["dilation"], *given["padding"], *image(source), *image(result),
        int(bias is not None), int(end.added is not None), *added, int(end.clamp is not None),
    ]  # fmt: skip
    if task.op == "nimble.winograd":
        ints = [given["side"], given["block"], *ints]
    return _product(f"{task.op.removeprefix('nimble.')}.float32", task, ints, end, tail)


def _pack_winograd(graph: Values, task: Task, given: dict[str, Any]) -> NativeCall | None:
    (weight,) = refs(task.args)
    _, panels, _, channels, _ = graph[weight].shape
    ints = (given["side"], panels, channels)
    return NativeCall("pack_winograd.float32", (task.writes[0], weight), ints)


def _linear(graph: Values, task: Task, given: dict[str, Any]) -> NativeCall | None:
    x, weight, bias = task.args[:3]
    assert isinstance(x, Ref)
    assert isinstance(weight, Ref)
    y = task.writes[0]
    source, result = graph[x.id], graph[y]
    rows, inside = source.shape
    out = result.shape[-1]
    down = down_of(result, rows)
    if down is None or result.strides[-1] != 1:
        return None
    small = rows <= _MOST_ROWS_OF_LINEAR
    end = end_of(given, clamps=not small)
    tail = epilogue(graph, end, lambda value: matrix(value, rows, out))
    if tail is None:
        return None
    more = 0
    if end.added is not None:
        strides = matrix(graph[end.added], rows, out)
        if strides is None or strides[1] != 1:
            return None
        more = strides[0]
    across = source.strides[0] if rows > 1 else inside
    panels = -(-out // 16)
    if small:
        ints = [rows, out, down, 0, panels, inside, across]
        ints += [int(bias is not None), int(end.added is not None), more]
        kernel = "linear.float32"
    else:
        # A matrix is an image of one row.
        ints = [1, 1, rows, 0, 1, rows, 1, inside, out, 0, panels, 1, 1, 1, 1, 1, 1, 0, 0]
        ints += [0, 0, across, 0, 0, down, int(bias is not None), int(end.added is not None)]
        ints += [0, 0, more, int(end.clamp is not None)]
        kernel = "convolution.float32"
        if inside > 8192:
            return None
    return _product(kernel, task, ints, end, tail)


def _product(
    kernel: str, task: Task, ints: list[int], end: End, tail: tuple[list[int], list[float]]
) -> NativeCall:
    """The call of a kernel that multiplies by weights, adds a bias and ends as `end` says."""
    operands = [*task.writes, *(v for arg in task.args[:3] for v in refs(arg))]
    operands += [end.added] if end.added is not None else []
    floats = (*(end.clamp or ()), *tail[1])
    return NativeCall(kernel, (*operands, *end.extras), (*ints, *tail[0]), floats)


def _layer_norm(graph: Values, task: Task, given: dict[str, Any]) -> NativeCall | None:
    x, weight, bias = task.args[:3]
    assert isinstance(x, Ref)
    y = task.writes[0]
    source, result = graph[x.id], graph[y]
    length = source.shape[-1]
    end = end_of(given, adds=False, clamps=False)
    count = source.numel // length
    tail = epilogue(graph, end, lambda value: matrix(value, count, length))
    outer = source.shape[:-1]
    if tail is None or len(outer) > 5 or result.shape != source.shape:
        return None
    if result.strides[-1] != 1 or source.strides[-1] != 1:
        return None
    none = [0] * len(outer)
    ints = [length, int(weight is not None), int(bias is not None), 0, 0, len(outer), *outer]
    # The order of the strides: y, x, residual, sum.
    ints += [*result.strides[:-1], *source.strides[:-1], *none, *none]
    operands = [y, x.id] + [arg.id for arg in (weight, bias) if isinstance(arg, Ref)]
    return NativeCall(
        "layer_norm.float32", (*operands, *end.extras), (*ints, *tail[0]),
        (float(given["eps"]), *tail[1]),
    )  # fmt: skip


def _pool(graph: Values, task: Task, given: dict[str, Any]) -> NativeCall | None:
    (x,) = refs(task.args)
    y = task.writes[0]
    source, result = graph[x], graph[y]
    if not is_image(source) or not is_image(result):
        return None
    (kh, kw), (ph, pw) = given["kernel"], given["padding"]
    (sh, sw), (dh, dw) = given["stride"], given["dilation"]
    if ph > kh // 2 or pw > kw // 2:
        return None
    batch, channels, height, width = source.shape
    ints = [batch, channels, height, width, *result.shape[2:], *image(result), *image(source)]
    ints += [kh, sh, ph, dh, kw, sw, pw, dw]
    mean = given["kind"] == "mean"
    if mean:
        by_area = given["counts_padding"] and not given["divisor"]
        if by_area and not _windows_fit(source, result, given):
            return None
        ints += [int(given["counts_padding"]), given["divisor"]]
    return NativeCall(f"{'avg' if mean else 'max'}_pool_nhwc.float32", (y, x), tuple(ints))


def _windows_fit(source: Value, result: Value, given: dict[str, Any]) -> bool:
    """Whether no window reaches beyond the padding, as one may with ceil_mode."""
    return all(
        (result.shape[2 + d] - 1) * given["stride"][d] + given["kernel"][d]
        <= source.shape[2 + d] + 2 * given["padding"][d]
        for d in range(2)
    )


def _reduce(graph: Values, task: Task, given: dict[str, Any]) -> NativeCall | None:
    (x,) = refs(task.args)
    y = task.writes[0]
    source, result = graph[x], graph[y]
    over = given["dims"]
    kept = [d for d in range(len(source.shape)) if d not in over]
    keeps = len(result.shape) == len(source.shape)
    strides = [result.strides[d] for d in kept] if keeps else list(result.strides)
    if len(kept) > 5 or len(over) > 5:
        return None
    ints = [len(kept), *(source.shape[d] for d in kept), *strides]
    ints += [*(source.strides[d] for d in kept)]
    ints += [len(over), *(source.shape[d] for d in over), *(source.strides[d] for d in over)]
    return NativeCall(f"{given['kind']}.float32", (y, x), tuple(ints))


def _copy(graph: Values, task: Task, given: dict[str, Any]) -> NativeCall | None:
    (x,) = refs(task.args)
    y = task.writes[0]
    source, result = graph[x], graph[y]
    if source.dtype.itemsize not in (1, 2, 4, 8) or len(result.shape) > 6:
        return None
    ints = [source.dtype.itemsize, len(result.shape), *result.shape]
    return NativeCall("copy_strided", (y, x), (*ints, *result.strides, *source.strides))


def _gather(graph: Values, task: Task, given: dict[str, Any]) -> NativeCall | None:
    table, indices = refs(task.args)
    y = task.writes[0]
    rows, length = graph[table].shape
    count = graph[indices].numel
    down = down_of(graph[y], count) if count > 1 else length
    if down is None or graph[y].strides[-1] != 1:
        return None
    ints = (4, 1, count, length, rows, 0, down, 0, graph[table].strides[0], 0, 1, 0)
    return NativeCall("gather_rows", (y, table, indices), ints)


def _attention(graph: Values, task: Task, given: dict[str, Any]) -> NativeCall | None:
    query, key, value, mask = task.args
    assert isinstance(query, Ref)
    assert isinstance(key, Ref)
    assert isinstance(value, Ref)
    q, k, v = graph[query.id], graph[key.id], graph[value.id]
    y, scratch = task.writes
    ints = [q.shape[0], q.shape[1], q.shape[1] // k.shape[1], q.shape[2], k.shape[2], q.shape[3]]
    ints += [v.shape[3], int(bool(given["causal"])), int(isinstance(mask, Ref))]
    for tensor in (graph[y], q, k, v):
        ints += tensor.strides[:3]
    operands = [y, scratch, query.id, key.id, value.id]
    if isinstance(mask, Ref):
        if graph[mask.id].dtype is not DType.FLOAT32:
            return None
        shape = (*q.shape[:3], k.shape[2])
        ints += broadcast(graph[mask.id], shape)
        operands.append(mask.id)
    return NativeCall("attention.float32", tuple(operands), tuple(ints), (float(given["scale"]),))


_CALLS: dict[str, Callable[[Values, Task, dict[str, Any]], NativeCall | None]] = {
    "nimble.pointwise": _pointwise,
    "nimble.convolution": _convolution,
    "nimble.depthwise": _convolution,
    "nimble.winograd": _convolution,
    "nimble.pack_winograd": _pack_winograd,
    "nimble.linear": _linear,
    "nimble.layer_norm": _layer_norm,
    "nimble.pool": _pool,
    "nimble.reduce": _reduce,
    "nimble.copy": _copy,
    "nimble.gather": _gather,
    "nimble.attention": _attention,
}
