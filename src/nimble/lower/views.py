"""Views of a value whose strides change: the same elements, told in the new strides."""

from __future__ import annotations

from dataclasses import replace

from nimble.graph import Value


def moved(view: Value, base: Value, strides: tuple[int, ...]) -> Value | None:
    """The view after its dense base has been given other `strides`; None if no strides can tell."""
    if view.dtype is not base.dtype:
        return None
    outer = sorted(
        (d for d in range(len(base.shape)) if base.shape[d] > 1), key=lambda d: -base.strides[d]
    )
    steps = []
    for size, stride in zip(view.shape, view.strides, strict=True):
        step = 0 if size == 1 or stride == 0 else _step(size, stride, base, strides, outer)
        if step is None:
            return None
        steps.append(step)
    offset, rest = 0, view.offset // base.dtype.itemsize
    for d in outer:
        index, rest = divmod(rest, base.strides[d])
        offset += index * strides[d]
    return replace(view, strides=_tidy(view, steps), offset=offset * base.dtype.itemsize)


def _step(
    size: int, stride: int, base: Value, strides: tuple[int, ...], outer: list[int]
) -> int | None:
    """What a step along a dimension of a view is in the new strides, if it is always the same."""
    for place, d in enumerate(outer):
        if base.strides[d] > stride or stride % base.strides[d]:
            continue
        times = stride // base.strides[d]
        if (size - 1) * times < base.shape[d]:
            return times * strides[d]
        # Several dimensions of the base as one: whole ones, that lie as one in the new strides too.
        covered, at = base.shape[d], place
        while times == 1 and covered < size and at > 0:
            at -= 1
            if strides[outer[at]] != strides[d] * covered:
                return None
            covered *= base.shape[outer[at]]
        return strides[d] if times == 1 and covered == size else None
    return None


def _tidy(view: Value, steps: list[int]) -> tuple[int, ...]:
    """The stride of a dimension of one element means nothing; let it look contiguous."""
    tidy: list[int] = []
    inner = 1
    for size, stride, step in reversed(list(zip(view.shape, view.strides, steps, strict=True))):
        tidy.append(inner if size == 1 else step)
        inner = step * size if size > 1 and stride else inner
    return tuple(reversed(tidy))
