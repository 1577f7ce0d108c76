"""The elements of strided values that share memory: do two overlap, do several cover another.

A value with nested strides is a box: a range in each digit of its elements' addresses, written in
the mixed radix of the strides. A slice of channels, a tile of rows and a flattened view are boxes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nimble.graph.ir import Value

Box: TypeAlias = tuple[tuple[int, int], ...]
_MOST_PIECES = 1024
_MOST_MARKED = 1 << 24
"""Elements that are worth being looked at one by one."""


def boxes(values: Sequence[Value]) -> list[Box | None]:
    """Boxes in one radix for all the values, which share a home and have elements.

    None for a value that is no box. If no radix suits them all, then just dense values are boxes.
    """
    radix = sorted({1, *(step for v in values for _, step in _dims(v))}, reverse=True)
    if any(high % low for high, low in pairwise(radix)):
        return [interval(v) if has_no_gaps(v) else None for v in values]
    return [_box(v, radix) for v in values]


def apart(a: Value, b: Value) -> bool:
    """Whether two values of one home are known to have no element in common."""
    if overlapping([interval(a), interval(b)]) is None:
        return True
    found = [box for box in boxes([a, b]) if box is not None]
    return overlapping(found) is None if len(found) == 2 else clash([a, b]) is None


def common(a: Value, b: Value) -> int:
    """About how many bytes two values of one home share: exactly, where both are boxes."""
    found = [box for box in boxes([a, b]) if box is not None]
    if len(found) < 2:
        found = [interval(a), interval(b)]
    ranges = zip(*found, strict=True)
    shared = [max(0, min(h, j) - max(g, i)) for (g, h), (i, j) in ranges]
    size: int = math.prod(shared)
    return min(size, a.numel * a.dtype.itemsize)


def overlaps_itself(value: Value) -> bool:
    """Whether two elements of a value might share a byte."""
    inner = 1
    for n, step in sorted(_dims(value), key=lambda dim: dim[1]):
        if step < inner:
            return True
        inner += (n - 1) * step
    return any(n > 1 and not s for n, s in zip(value.shape, value.strides, strict=True))


def interval(value: Value) -> Box:
    """The bytes of a value, gaps included."""
    return ((value.offset, value.offset + value.span),)


def has_no_gaps(value: Value) -> bool:
    """Whether the value has no gaps, so that its elements are all bytes of its interval."""
    expected = 1
    for n, step in sorted(_dims(value), key=lambda dim: dim[1]):
        if step != expected:
            return False
        expected *= n
    return True


def _dims(value: Value) -> list[tuple[int, int]]:
    """Sizes and steps in bytes, the bytes of an element last; only those that tell bytes apart."""
    size = value.dtype.itemsize
    dims = ((n, s * size) for n, s in zip(value.shape, value.strides, strict=True))
    return [(n, step) for n, step in (*dims, (size, 1)) if n > 1 and step]


def _box(value: Value, radix: list[int]) -> Box | None:
    extent = dict.fromkeys(radix, 1)
    for n, step in _dims(value):
        if extent[step] > 1:
            return None
        extent[step] = n
    ranges = []
    for place in range(len(radix) - 1, -1, -1):
        step = radix[place]
        digit, size = value.offset // step, extent[step]
        if place > 0:
            base = radix[place - 1] // step
            digit %= base
            if digit + size > base:
                if digit or size % base or extent[radix[place - 1]] > 1:
                    return None
                extent[radix[place - 1]] = size // base
                size = base
        ranges.append((digit, digit + size))
    return tuple(ranges)


def overlapping(boxes: Sequence[Box]) -> tuple[int, int] | None:
    """The places of two boxes that have an element in common, if any have."""
    bounds = np.array(boxes, np.int64)
    low, high = bounds[:, :, 0], bounds[:, :, 1]
    for a in range(len(boxes) - 1):
        common = ((low[a] < high[a + 1 :]) & (low[a + 1 :] < high[a])).all(axis=1)
        if common.any():
            return a, a + 1 + int(common.argmax())
    return None


def covered(target: Box, by: Sequence[Box]) -> bool:
    """Whether every element of `target` is in one of the boxes."""
    pieces = [target]
    for box in by:
        pieces = [rest for piece in pieces for rest in _without(piece, box)]
        if not pieces or len(pieces) > _MOST_PIECES:
            break
    return not pieces


def _without(piece: Box, box: Box) -> list[Box]:
    if any(b <= c or d <= a for (a, b), (c, d) in zip(piece, box, strict=True)):
        return [piece]
    rest = []
    inner = list(piece)
    for place, ((a, b), (c, d)) in enumerate(zip(piece, box, strict=True)):
        for low, high in ((a, min(b, c)), (max(a, d), b)):
            if low < high:
                rest.append((*inner[:place], (low, high), *piece[place + 1 :]))
        inner[place] = (max(a, c), min(b, d))
    return rest


# For values that are no boxes in one radix, such as every other pixel of images of odd sizes:
# looking at every element.


def marked(target: Value, by: Sequence[Value]) -> bool:
    """As `covered`; False where that would take too long."""
    marks = _Marks.of([target, *by])
    if marks is None:
        return False
    for value in by:
        marks.of_value(value)[...] = 1
    return bool(marks.of_value(target).all())


def clash(values: Sequence[Value]) -> tuple[int, int] | None:
    """The places of two values that have an element in common, if any have; also where that cannot
    be told in time."""
    marks = _Marks.of(values)
    if marks is None:
        return 0, 1
    for place, value in enumerate(values):
        mine = marks.of_value(value)
        taken = int(mine.max())
        if taken:
            return taken - 1, place
        mine[...] = place + 1
    return None


@dataclass(frozen=True)
class _Marks:
    """A number for every element from the first to the last of some values."""

    numbers: NDArray[np.int16]
    first: int
    size: int

    @staticmethod
    def of(values: Sequence[Value]) -> _Marks | None:
        size = values[0].dtype.itemsize
        if any(v.dtype.itemsize != size or v.offset % size for v in values):
            return None
        first = min(v.offset for v in values)
        room = (max(v.offset + v.span for v in values) - first) // size
        if room > _MOST_MARKED or any(s < 0 for v in values for s in v.strides):
            return None
        return _Marks(np.zeros(room, np.int16), first, size)

    def of_value(self, value: Value) -> NDArray[np.int16]:
        at = self.numbers[(value.offset - self.first) // self.size :]
        steps = [stride * at.itemsize for stride in value.strides]
        return np.lib.stride_tricks.as_strided(at, value.shape, steps)
