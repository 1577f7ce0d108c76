"""The strides by which a kernel walks through a value."""

from __future__ import annotations

from nimble.graph import Value, even_step


def broadcast(value: Value, shape: tuple[int, ...]) -> list[int]:
    """The strides of a value, spread over `shape`."""
    missing = len(shape) - len(value.shape)
    strides = [0] * missing
    for size, stride, wide in zip(value.shape, value.strides, shape[missing:], strict=True):
        strides.append(0 if size == 1 and wide != 1 else stride)
    return strides


def image(value: Value) -> tuple[int, int, int]:
    """Strides from image to image, row to row, pixel to pixel. A sequence is one row."""
    if len(value.shape) == 3:
        return value.strides[0], 0, value.strides[2]
    return value.strides[0], value.strides[2], value.strides[3]


def pixels(value: Value, like: Value) -> tuple[int, int] | None:
    """The strides of an operand of an image's tail: from pixel to pixel, and from channel to
    channel."""
    dims = len(like.shape)
    shape = (1,) * (dims - len(value.shape)) + value.shape
    strides = (0,) * (dims - len(value.shape)) + value.strides
    if value.numel == shape[1]:
        return 0, strides[1] if shape[1] > 1 else 0
    if shape != like.shape:
        return None
    pixel = even_step((shape[0], *shape[2:]), (strides[0], *strides[2:]))
    return None if pixel is None else (pixel, strides[1] if shape[1] > 1 else 1)


def down_of(value: Value, rows: int) -> int | None:
    """From row to row of a value seen as a matrix of `rows` rows."""
    if value.numel != rows * value.shape[-1]:
        return None
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
    step = even_step(value.shape[:-1], value.strides[:-1])
    return None if step is None else (step if rows > 1 else columns, inner)
