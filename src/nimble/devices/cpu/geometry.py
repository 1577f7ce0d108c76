"""The strides by which a kernel walks through a value."""

from __future__ import annotations

from nimble.graph import Value


def broadcast(value: Value, shape: tuple[int, ...]) -> list[int]:
    """The strides of a value, spread over `shape`."""
    missing = len(shape) - len(value.shape)
    strides = [0] * missing
    for size, stride, wide in zip(value.shape, value.strides, shape[missing:], strict=True):
        strides.append(0 if size == 1 and wide != 1 else stride)
    return strides


def image(value: Value) -> tuple[int, int, int]:
    return value.strides[0], value.strides[2], value.strides[3]


def pixels(value: Value, like: Value) -> tuple[int, int] | None:
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


def down_of(value: Value, rows: int) -> int | None:
    """From row to row of a value seen as a matrix of `rows` rows."""
    found = matrix(value, rows, value.shape[-1])
    return None if found is None else found[0]


def matrix(value: Value, rows: int, columns: int) -> tuple[int, int] | None:
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
