"""What only training needs: statistics of channels, and gradients of weights."""

from __future__ import annotations

import math

from nimble.devices.cpu.calls.call import Given, Make, NativeCall
from nimble.devices.cpu.geometry import even_step, image
from nimble.graph import DType, Task, Value, refs
from nimble.lower import Values
from nimble.lower.heads import is_image


def _statistics(graph: Values, task: Task, given: Given) -> NativeCall | None:
    """Sums over the batch and all pixels, of one image or of two."""
    read = tuple(refs(task.args))
    images = read[:1] if task.op == "nimble.moments" else read[:2]
    joined = [_joined_steps(graph[v]) for v in images]
    steps = [_steps(graph[v]) for v in images] if None in joined else joined
    if None in steps or any(graph[v].dtype is not DType.FLOAT32 for v in (*read, *task.writes)):
        return None
    if any(graph[v].strides != (1,) for v in (*read[len(images) :], *task.writes)):
        return None
    batch, channels, *space = graph[images[0]].shape
    pixels = math.prod(space)
    ints = [batch, channels, pixels] if None in joined else [1, channels, batch * pixels]
    for step in steps:
        ints += step or ()
    kernel = f"{task.op.partition('.')[2]}.float32"
    return NativeCall(kernel, (*task.writes, *read), tuple(ints))


def _steps(value: Value) -> tuple[int, int, int] | None:
    """From image to image, from channel to channel, from pixel to pixel."""
    if len(value.shape) < 2 or not value.numel:
        return None
    pixel = even_step(value.shape[2:], value.strides[2:])
    channel = value.strides[1] if value.shape[1] > 1 else 1
    return None if pixel is None else (value.strides[0], channel, pixel)


def _joined_steps(value: Value) -> tuple[int, int, int] | None:
    """The same where all images are as one: channels last, or images of one pixel."""
    steps = _steps(value)
    if steps is None:
        return None
    pixel = even_step(value.shape[:1] + value.shape[2:], value.strides[:1] + value.strides[2:])
    return None if pixel is None else (0, steps[1], pixel)


def _weights(graph: Values, task: Task, given: Given) -> NativeCall | None:
    gradient, x = (graph[v] for v in refs(task.args))
    result = graph[task.writes[0]]
    if any(v.dtype is not DType.FLOAT32 for v in (gradient, x, result)):
        return None
    if not (is_image(gradient) and is_image(x)) or len(x.shape) != 4:
        return None
    ints = [gradient.shape[0], *result.shape[:2]]
    for d in range(2):
        ints += [gradient.shape[2 + d], x.shape[2 + d]]
        ints += [given[name][d] for name in ("kernel", "stride", "dilation", "padding")]
    kernel = f"{task.op.partition('.')[2]}.float32"
    ints += [*image(gradient), *image(x), *result.strides]
    return NativeCall(kernel, (*task.writes, *refs(task.args)), tuple(ints))


CALLS: dict[str, Make] = {
    "nimble.depthwise_gradient": _weights,
    "nimble.gradient_sums": _statistics,
    "nimble.moments": _statistics,
    "nimble.weight_gradient": _weights,
}
