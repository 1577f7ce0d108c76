"""Products of matrices."""

from __future__ import annotations

from nimble.devices.cpu.calls.call import Given, Make, NativeCall, elements, in_line, product
from nimble.devices.cpu.geometry import down_of, matrix, pixels
from nimble.devices.cpu.programs import end_of, epilogue
from nimble.graph import Ref, Task, even_step
from nimble.lower import Values
from nimble.lower.heads import is_image

_MOST_ROWS_OF_LINEAR = 12
_MOST_INSIDE = 8192
"""Of the kernel of convolutions."""


def _linear(graph: Values, task: Task, given: Given) -> NativeCall | None:
    x, weight, bias = task.args[:3]
    assert isinstance(x, Ref)
    assert isinstance(weight, Ref)
    y = task.writes[0]
    source, result = graph[x.id], graph[y]
    rows, inside = source.shape
    out = result.shape[-1]
    down = down_of(result, rows)
    if down is None or result.strides[-1] != 1 or not in_line(graph, x, bias):
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
    together, dtype = elements(source)
    across = source.strides[0] if rows > 1 else inside
    if not together or inside % together or across % together:
        return None
    inside, across = inside // together, across // together
    panels = -(-out // 16)
    if small:
        ints = [rows, out, down, 0, panels, inside, across]
        ints += [int(bias is not None), int(end.added is not None), more]
        kernel = f"linear.{dtype}"
    else:
        # A matrix is an image of one row.
        ints = [1, 1, rows, 0, 1, rows, 1, inside, out, 0, panels, 1, 1, 1, 1, 1, 1, 0, 0]
        ints += [0, 0, across, 0, 0, down, int(bias is not None), int(end.added is not None)]
        ints += [0, 0, more, int(end.clamp is not None)]
        kernel = f"convolution.{dtype}"
        if inside > _MOST_INSIDE:
            return None
    return product(kernel, task, ints, end, tail)


def _matmul(graph: Values, task: Task, given: Given) -> NativeCall | None:
    """x: (batch…, rows, in), w: (batch…, in, out). The elements of a row of x lie side by side; the
    result may show its batch in other dimensions."""
    x, w = (graph[arg.id] for arg in task.args if isinstance(arg, Ref))
    result = graph[task.writes[0]]
    rows, inside = x.shape[-2:]
    if x.strides[-1] != 1 or result.strides[-1] != 1:
        return None
    if result.shape[-2:] != (rows, w.shape[-1]):
        return None
    end = end_of(given, adds=False, clamps=False)
    count = result.numel // result.shape[-1]
    tail = epilogue(graph, end, lambda value: matrix(value, count, result.shape[-1]))
    steps = [even_step(v.shape[:-2], v.strides[:-2]) for v in (result, x, w)]
    if tail is None or None in steps:
        return None
    ints = [rows, result.shape[-1], inside, result.strides[-2], x.strides[-2], *w.strides[-2:]]
    ints += [1, x.numel // (rows * inside), *(step or 0 for step in steps)]
    operands = (*task.writes, *(arg.id for arg in task.args if isinstance(arg, Ref)))
    return NativeCall("matmul.float32", (*operands, *end.extras), (*ints, *tail[0]), tuple(tail[1]))


def _mixing(graph: Values, task: Task, given: Given) -> NativeCall | None:
    """x: an image, w: (in, out). Pixels are the rows of a matrix."""
    x, w = (graph[arg.id] for arg in task.args if isinstance(arg, Ref))
    result = graph[task.writes[0]]
    if not is_image(x) or not is_image(result):
        return None
    if (x.shape[0], *x.shape[2:]) != (result.shape[0], *result.shape[2:]):
        return None
    down, across = (
        even_step((v.shape[0], *v.shape[2:]), (v.strides[0], *v.strides[2:])) for v in (result, x)
    )
    end = end_of(given, adds=False, clamps=False)
    tail = epilogue(graph, end, lambda value: pixels(value, result))
    if tail is None or down is None or across is None:
        return None
    rows = x.numel // x.shape[1]
    ints = [rows, result.shape[1], x.shape[1], down, across, *w.strides, 1, 1, 0, 0, 0]
    operands = (*task.writes, *(arg.id for arg in task.args if isinstance(arg, Ref)))
    return NativeCall("matmul.float32", (*operands, *end.extras), (*ints, *tail[0]), tuple(tail[1]))


CALLS: dict[str, Make] = {
    "nimble.linear": _linear,
    "nimble.matmul": _matmul,
    "nimble.mixing": _mixing,
}
