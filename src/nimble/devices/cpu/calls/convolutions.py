"""Convolutions of images, and of sequences, which are images of one row."""

from __future__ import annotations

from nimble.devices.cpu.calls.call import Given, Make, NativeCall, elements, in_line, product
from nimble.devices.cpu.geometry import image, pixels
from nimble.devices.cpu.programs import end_of, epilogue
from nimble.graph import Ref, Task, Value, refs
from nimble.lower import Values
from nimble.lower.heads import is_image

_NOWHERE = (0, 0, 0)


def _convolution(graph: Values, task: Task, given: Given) -> NativeCall | None:
    x, weight, bias = task.args[:3]
    assert isinstance(x, Ref)
    assert isinstance(weight, Ref)
    y = task.writes[0]
    source, result = graph[x.id], graph[y]
    if not is_image(source) or not is_image(result) or not in_line(graph, bias):
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
    (high, wide), (rows, columns) = _size(source), _size(result)
    turned = -1 if len(source.shape) == 3 else 1
    together, dtype = elements(source)
    inside = source.shape[1] // groups
    if not together or any(n % together for n in (inside, *image(source))):
        return None
    if together > 1 and task.op != "nimble.convolution":
        return None
    ints = [
        source.shape[0], high, wide, 0, rows, columns,
        groups, inside // together, out, 0, panels,
        *(graph[weight.id].strides[:1] if depthwise else ()),
        *given["kernel"][::turned], *given["stride"][::turned], *given["dilation"][::turned],
        *given["padding"][::turned], *(n // together for n in image(source)), *image(result),
        int(bias is not None), int(end.added is not None), *added, int(end.clamp is not None),
    ]  # fmt: skip
    if task.op == "nimble.winograd":
        ints = [given["side"], given["block"], *ints]
    return product(f"{task.op.removeprefix('nimble.')}.{dtype}", task, ints, end, tail)


def _size(value: Value) -> tuple[int, int]:
    """Height and width. What a task calls the rows of a sequence are columns here: kernels go along
    rows."""
    return (1, value.shape[2]) if len(value.shape) == 3 else (value.shape[2], value.shape[3])


def _pack_winograd(graph: Values, task: Task, given: Given) -> NativeCall | None:
    (weight,) = refs(task.args)
    _, panels, _, channels, _ = graph[weight].shape
    ints = (given["side"], panels, channels)
    return NativeCall("pack_winograd.float32", (task.writes[0], weight), ints)


CALLS: dict[str, Make] = {
    "nimble.convolution": _convolution,
    "nimble.depthwise": _convolution,
    "nimble.winograd": _convolution,
    "nimble.pack_winograd": _pack_winograd,
}
