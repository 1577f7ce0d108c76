"""Do two views of the same memory have an element in common? Exact, where bounds are not."""

from __future__ import annotations

from nimble.graph.ir import Value

_PATIENCE = 10_000
"""Combinations looked at before the answer is "maybe"."""


def may_overlap(a: Value, b: Value) -> bool:
    """False only if no byte belongs to both. The values must be views of one base, or be it."""
    if a.numel == 0 or b.numel == 0:
        return False
    if a.offset >= b.offset + b.span or b.offset >= a.offset + a.span:
        return False
    if a.dtype.itemsize != b.dtype.itemsize or (b.offset - a.offset) % a.dtype.itemsize:
        return True
    # Elements coincide where a's steps minus b's steps make up for the distance of their starts.
    steps = [(s, 0, n - 1) for n, s in zip(a.shape, a.strides, strict=True) if s and n > 1]
    steps += [(s, 1 - n, 0) for n, s in zip(b.shape, b.strides, strict=True) if s and n > 1]
    steps.sort(reverse=True)
    return _reachable((b.offset - a.offset) // a.dtype.itemsize, steps)


def _reachable(distance: int, steps: list[tuple[int, int, int]]) -> bool:
    """Whether `distance` is a sum of multiples of the strides, each within its bounds."""
    low, high = [0], [0]
    for stride, least, most in reversed(steps):
        low.append(low[-1] + stride * least)
        high.append(high[-1] + stride * most)
    low.reverse()
    high.reverse()
    looked, stack = 0, [(distance, 0)]
    while stack:
        left, place = stack.pop()
        if place == len(steps):
            if left == 0:
                return True
            continue
        stride, least, most = steps[place]
        # What is left after this step must be within reach of the steps that follow.
        first = max(least, -((high[place + 1] - left) // stride))
        last = min(most, (left - low[place + 1]) // stride)
        looked += max(last - first + 1, 0)
        if looked > _PATIENCE:
            return True
        stack += [(left - stride * k, place + 1) for k in range(first, last + 1)]
    return False
