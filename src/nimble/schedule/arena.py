"""Where in the arena each value lies: greedy placement, repeated with what went wrong put first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nimble.schedule.bounds import heaviest_antichain
from nimble.schedule.lifetimes import Home, peak, precedes
from nimble.schedule.order import Order

_CLOSE = 1.02
_PLACEMENTS = 30_000
"""How many a search may make in all, so that big graphs are searched less."""
_MOST_ROUNDS = 200
_FRESH_START = 12
_BLAME = 1.5
_SMALL, _PATIENT_PLACEMENTS, _PATIENT_START, _PATIENT_BLAME = 1000, 120_000, 100, 1.1
"""If that was not enough, graphs of few values are searched once more: longer, and with a
lighter hand."""


@dataclass(frozen=True, slots=True)
class Arena:
    offsets: tuple[int, ...]
    """One for each home, in their order."""
    bytes: int


def arrange(homes: Sequence[Home], order: Order, limit: int | None = None) -> Arena:
    """A small arena for a schedule with this happens-before order, below `limit` if it can be.

    The search is a squeaky wheel: values that stick out above the lower bound get a higher priority
    in the next round, and from time to time it starts afresh. It is cut short where the lower bound
    is above the limit.
    """
    if not homes:
        return Arena((), 0)
    sizes = np.array([home.size for home in homes], np.int64)
    ordered = precedes(homes, order)
    conflicts = ~(ordered | ordered.T)
    np.fill_diagonal(conflicts, False)
    starts = _priorities(sizes, conflicts)
    priority = next(starts)
    best = arena = _place(sizes, conflicts, priority)
    if best.bytes == peak(homes, order.sequence):
        return best
    bound = heaviest_antichain(sizes.tolist(), ordered)
    goal = int(_CLOSE * bound)
    if limit is not None:
        goal = min(goal, limit) if bound <= limit else best.bytes
    rounds = min(_MOST_ROUNDS, max(3, _PLACEMENTS // len(homes)))
    patient = min(_MOST_ROUNDS, _PATIENT_PLACEMENTS // len(homes)) if len(homes) <= _SMALL else 0
    again = _priorities(sizes, conflicts)
    for turn in range(1, rounds + patient):
        if best.bytes <= goal:
            break
        out = np.array(arena.offsets) + sizes > bound
        if turn >= rounds and (turn - rounds) % _PATIENT_START == 0:
            priority = next(again)
        elif turn > rounds:
            priority = priority * np.where(out, _PATIENT_BLAME, 1)
        elif turn % _FRESH_START == 0:
            priority = next(starts)
        else:
            priority = priority * np.where(out, _BLAME, 1)
        arena = _place(sizes, conflicts, priority)
        if arena.bytes < best.bytes:
            best = arena
    return best


def _priorities(
    sizes: NDArray[np.int64], conflicts: NDArray[np.bool_]
) -> Iterator[NDArray[np.float64]]:
    """What to place first: what conflicts with many bytes, with many values, and is large."""
    crowd = np.array([sizes[row].sum() for row in conflicts], np.float64)
    count = conflicts.sum(axis=1).astype(np.float64)
    yield from (crowd, count, crowd * sizes)
    random = np.random.default_rng(0)
    while True:
        for priority in (crowd, count):
            yield priority * random.uniform(1, 1.3, len(sizes))


def _place(
    sizes: NDArray[np.int64], conflicts: NDArray[np.bool_], priority: NDArray[np.float64]
) -> Arena:
    """Fill the arena from below: next comes whatever can lie lowest, above all that is there."""
    offsets = np.zeros(len(sizes), np.int64)
    lowest = np.zeros(len(sizes), np.int64)
    placed = np.iinfo(np.int64).max
    for _ in range(len(sizes)):
        candidates = np.flatnonzero(lowest == lowest.min())
        home = candidates[priority[candidates].argmax()]
        offsets[home] = lowest[home]
        end = offsets[home] + sizes[home]
        lowest[home] = placed
        lowest[conflicts[home] & (lowest < end)] = end
    return Arena(tuple(offsets.tolist()), int((offsets + sizes).max()))
