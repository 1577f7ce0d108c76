"""What training needs: statistics of channels, gradients of weights, and losses."""

from __future__ import annotations

import math

from nimble.devices.cpu.calls.call import Given, Make, NativeCall
from nimble.devices.cpu.geometry import image
from nimble.graph import DType, Task, Value, even_step, refs
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


def _losses(graph: Values, task: Task, given: Given) -> NativeCall | None:
    """Of rows of logits."""
    logits, target = (graph[v] for v in task.reads[:2])
    if not _are_rows(logits, *(graph[v] for v in task.writes)) or not _are_targets(target, logits):
        return None
    ints = (*logits.shape, given["ignored"], logits.strides[0])
    return NativeCall("cross_entropy.float32", (*task.writes, *task.reads[:2]), ints)


def _total_loss(graph: Values, task: Task, given: Given) -> NativeCall | None:
    losses, target = (graph[v] for v in task.reads[:2])
    if not _are_rows(losses, *(graph[v] for v in task.writes)) or not _are_targets(target, losses):
        return None
    ints = (*losses.shape, given["ignored"], int(given["mean"]))
    return NativeCall("total_loss.float32", (*task.writes, *task.reads[:2]), ints)


def _loss_gradient(graph: Values, task: Task, given: Given) -> NativeCall | None:
    operands = tuple(refs(task.args))
    logits, target, shifts, *numbers = (graph[v] for v in operands)
    result = graph[task.writes[0]]
    if not _are_rows(logits, shifts, result, *numbers) or not _are_targets(target, logits):
        return None
    if len(numbers) != 2 or any(number.numel != 1 for number in numbers):
        return None
    ints = (
        *logits.shape,
        given["ignored"],
        int(given["mean"]),
        result.strides[0],
        logits.strides[0],
    )
    return NativeCall("cross_entropy_gradient.float32", (*task.writes, *operands), ints)


def _are_rows(*values: Value) -> bool:
    """Floats, and something there; rows have no gaps."""
    return all(
        value.dtype is DType.FLOAT32
        and value.numel > 0
        and (not value.shape or value.shape[-1] == 1 or value.strides[-1] == 1)
        for value in values
    )


def _are_targets(target: Value, rows: Value) -> bool:
    return (
        target.dtype is DType.INT64
        and target.shape == rows.shape[:1]
        and (target.numel == 1 or target.strides == (1,))
    )


CALLS: dict[str, Make] = {
    "nimble.cross_entropy": _losses,
    "nimble.cross_entropy_gradient": _loss_gradient,
    "nimble.total_loss": _total_loss,
    "nimble.depthwise_gradient": _weights,
    "nimble.gradient_sums": _statistics,
    "nimble.moments": _statistics,
    "nimble.weight_gradient": _weights,
}
