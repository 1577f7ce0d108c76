"""A lowered task as the call of a native kernel: its operands and numbers, in the kernel's order.

native/kernels/README.md says what each kernel takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nimble import _core
from nimble.graph import DType, Ref, Task, Value, refs
from nimble.lower import Values
from nimble.lower.heads import is_image

_OPCODES = _core.opcodes()
_DTYPES = {DType.FLOAT32: 0, DType.BOOL: 1, DType.INT64: 2, DType.INT32: 3}
_MOST_ROWS_OF_LINEAR = 12
_NOWHERE = (0, 0, 0)
Tail = tuple[tuple[str, tuple[int | float, ...]], ...]


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


# Programs


def _instructions(
    steps: Sequence[tuple[str, Sequence[int | float]]], inputs: int, outputs: Sequence[int]
) -> tuple[list[int], list[float]]:
    """Instructions on registers: inputs, then outputs, then the others; numbers as constants."""
    floats: list[float] = []
    place = {register: inputs + o for o, register in enumerate(outputs)}
    free = inputs + len(outputs)
    ints = [len(steps)]
    for i, (name, operands) in enumerate(steps):
        register = inputs + i
        if register not in place:
            place[register] = free
            free += 1
        numbers = []
        for operand in _completed(name, operands):
            if isinstance(operand, float):
                if operand not in floats or str(operand) != str(floats[floats.index(operand)]):
                    floats.append(operand)
                numbers.append(-1 - floats.index(operand))
            else:
                numbers.append(operand if operand < inputs else place[operand])
        ints += [_OPCODES[name], place[register], *numbers, *[0] * (3 - len(numbers))]
    return ints, floats


def _completed(name: str, operands: Sequence[int | float]) -> Sequence[int | float]:
    return (*operands, 1.0, 20.0) if name == "softplus" and len(operands) == 1 else operands


def _pointwise(graph: Values, task: Task, given: dict[str, Any]) -> NativeCall | None:
    inputs, steps, outputs = given["program"]
    shape = graph[task.writes[0]].shape
    results = [v for v in task.results if v is not None]
    sources = [v for arg in task.args for v in refs(arg)]
    if len(shape) > 6 or graph[results[0]].numel == 0:
        return None
    ints = [len(results), len(sources), len(shape), *shape]
    for v in (*results, *sources):
        if graph[v].dtype not in _DTYPES:
            return None
        ints += [_DTYPES[graph[v].dtype], *_broadcast(graph[v], shape)]
    code, floats = _instructions(steps, inputs, outputs)
    return NativeCall("pointwise.float32", (*results, *sources), (*ints, *code), tuple(floats))


def _broadcast(value: Value, shape: tuple[int, ...]) -> list[int]:
    """The strides of a value, spread over `shape`."""
    missing = len(shape) - len(value.shape)
    strides = [0] * missing
    for size, stride, wide in zip(value.shape, value.strides, shape[missing:], strict=True):
        strides.append(0 if size == 1 and wide != 1 else stride)
    return strides


# Tails


@dataclass(frozen=True, slots=True)
class _End:
    """What a kernel does before it stores its result."""

    added: int | None
    clamp: tuple[float, float] | None
    tail: Tail
    """The rest, as a program; operands from 1 on are `extras`."""
    extras: tuple[int, ...]


def _end(given: dict[str, Any], clamps: bool) -> _End:
    tail: Tail = given.get("tail", ())
    extras = tuple(ref.id for ref in given.get("operands", ()))
    added = clamp = None
    rest = tail
    if rest and rest[0][0] == "add" and sorted(map(type, rest[0][1]), key=str) == [int, int]:
        added = extras[max(int(o) for o in rest[0][1]) - 1]
        rest = rest[1:]
    if clamps and rest and rest[0][0] in ("relu", "clamp"):
        name, operands = rest[0]
        clamp = (0.0, float("inf")) if name == "relu" else (float(operands[1]), float(operands[2]))
        rest = rest[1:] if clamp[0] < clamp[1] else rest
    if not rest:
        return _End(added, clamp, (), ())
    return _End(None, None, tail, extras)


def _epilogue(
    graph: Values, end: _End, row: Callable[[Value], tuple[int, int] | None]
) -> tuple[list[int], list[float]] | None:
    """The ints of the tail; `row` gives the strides of an extra operand by rows and inside them."""
    if not end.tail:
        return [], []
    ints = [len(end.extras)]
    for v in end.extras:
        strides = row(graph[v])
        if strides is None or graph[v].dtype is not DType.FLOAT32:
            return None
        ints += [_DTYPES[graph[v].dtype], *strides]
    inputs = 1 + len(end.extras)
    steps = []
    for i, (name, operands) in enumerate(end.tail):
        running = 0 if i == 0 else inputs + i - 1
        steps.append((name, [running if type(o) is int and o == 0 else o for o in operands]))
    code, floats = _instructions(steps, inputs, [inputs + len(end.tail) - 1])
    return [*ints, *code], floats


def _image(value: Value) -> tuple[int, int, int]:
    return value.strides[0], value.strides[2], value.strides[3]


def _rows_of(value: Value, like: Value) -> tuple[int, int] | None:
    """The strides of an operand of an image's tail: from pixel to pixel, and from channel to
    channel."""
    shape = (1,) * (4 - len(value.shape)) + value.shape
    strides = (0,) * (4 - len(value.shape)) + value.strides
    steps = [0 if n == 1 else s for n, s in zip(shape, strides, strict=True)]
    if shape[0] == 1 and shape[2:] == (1, 1) and like.shape[0] == 1:
        return 0, steps[1]
    if shape != like.shape:
        return None
    n, c, h, w = shape
    pixel = steps[3] if w > 1 else (steps[2] if h > 1 else steps[0])
    even = (h == 1 or w == 1 or steps[2] == w * pixel) and (
        n == 1 or h * w == 1 or steps[0] == h * w * pixel
    )
    return (pixel, steps[1] if c > 1 else 1) if even else None


# Kernels


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
    end = _end(given, clamps=True)
    added = _NOWHERE
    if end.added is not None:
        plus = graph[end.added]
        if plus.shape != result.shape or not is_image(plus):
            return None
        added = _image(plus)
    tail = _epilogue(graph, end, lambda value: _rows_of(value, result))
    if tail is None:
        return None
    ints = [
        source.shape[0], source.shape[2], source.shape[3], 0, result.shape[2], result.shape[3],
        groups, source.shape[1] // groups, out, 0, panels,
        *(graph[weight.id].strides[:1] if depthwise else ()), *given["kernel"], *given["stride"],
        *given["dilation"], *given["padding"], *_image(source), *_image(result),
        int(bias is not None), int(end.added is not None), *added, int(end.clamp is not None),
    ]  # fmt: skip
    operands = [y, x.id, weight.id]
    operands += [bias.id] if isinstance(bias, Ref) else []
    operands += [end.added] if end.added is not None else []
    kernel = "depthwise.float32" if depthwise else "convolution.float32"
    floats = (*(end.clamp or ()), *tail[1])
    return NativeCall(kernel, (*operands, *end.extras), (*ints, *tail[0]), floats)


def _linear(graph: Values, task: Task, given: dict[str, Any]) -> NativeCall | None:
    x, weight, bias = task.args[:3]
    assert isinstance(x, Ref)
    assert isinstance(weight, Ref)
    y = task.writes[0]
    source, result = graph[x.id], graph[y]
    rows, inside = source.shape
    out = result.shape[-1]
    down = _down(result, rows)
    if down is None or result.strides[-1] != 1:
        return None
    small = rows <= _MOST_ROWS_OF_LINEAR
    end = _end(given, clamps=not small)
    extra = [_matrix(graph[v], rows, out) for v in (*end.extras, *filter(None, (end.added,)))]
    if any(found is None for found in extra):
        return None
    tail = _epilogue(graph, end, lambda value: _matrix(value, rows, out))
    if tail is None:
        return None
    more = 0
    if end.added is not None:
        strides = _matrix(graph[end.added], rows, out)
        assert strides is not None
        if strides[1] != 1:
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
    operands = [y, x.id, weight.id]
    operands += [bias.id] if isinstance(bias, Ref) else []
    operands += [end.added] if end.added is not None else []
    floats = (*(end.clamp or ()), *tail[1])
    return NativeCall(kernel, (*operands, *end.extras), (*ints, *tail[0]), floats)


def _down(value: Value, rows: int) -> int | None:
    """From row to row of a value seen as a matrix of `rows` rows."""
    found = _matrix(value, rows, value.shape[-1])
    return None if found is None else found[0]


def _matrix(value: Value, rows: int, columns: int) -> tuple[int, int] | None:
    """The strides of a value seen as a matrix, or broadcast to one."""
    if value.numel == columns and value.shape[-1:] == (columns,) and rows != 1:
        return 0, value.strides[-1] if columns > 1 else 1
    if value.numel == 1:
        return 0, 0
    if value.shape[-1:] != (columns,) or value.numel != rows * columns:
        return None
    inner = value.strides[-1] if columns > 1 else 1
    step, seen = None, 1
    for size, stride in zip(reversed(value.shape[:-1]), reversed(value.strides[:-1]), strict=True):
        if size == 1:
            continue
        if step is None:
            step = stride
        elif stride != step * seen:
            return None
        seen *= size
    return (columns if step is None else step), inner


def _layer_norm(graph: Values, task: Task, given: dict[str, Any]) -> NativeCall | None:
    x, weight, bias = task.args[:3]
    assert isinstance(x, Ref)
    y = task.writes[0]
    source, result = graph[x.id], graph[y]
    length = source.shape[-1]
    end = _end(given, clamps=False)
    if end.added is not None:
        extras = tuple(ref.id for ref in given["operands"])
        end = _End(None, None, given["tail"], extras)
    count = source.numel // length
    tail = _epilogue(graph, end, lambda value: _matrix(value, count, length))
    if tail is None or result.strides[-1] != 1 or source.strides[-1] != 1:
        return None
    if result.shape != source.shape:
        return None
    outer = source.shape[:-1]
    if len(outer) > 5:
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
    ints = [batch, channels, height, width, *result.shape[2:], *_image(result), *_image(source)]
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
    down = _down(graph[y], count) if count > 1 else length
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
        ints += _broadcast(graph[mask.id], shape)
        operands.append(mask.id)
    return NativeCall("attention.float32", tuple(operands), tuple(ints), (float(given["scale"]),))


_CALLS: dict[str, Callable[[Values, Task, dict[str, Any]], NativeCall | None]] = {
    "nimble.pointwise": _pointwise,
    "nimble.convolution": _convolution,
    "nimble.depthwise": _convolution,
    "nimble.linear": _linear,
    "nimble.layer_norm": _layer_norm,
    "nimble.pool": _pool,
    "nimble.reduce": _reduce,
    "nimble.copy": _copy,
    "nimble.gather": _gather,
    "nimble.attention": _attention,
}
