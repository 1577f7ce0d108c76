"""Schedules within a limit on memory: fewer streams, then orders that keep fewer bytes alive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nimble.errors import MemoryLimitError
from nimble.schedule.arena import Arena, arrange
from nimble.schedule.assignment import Assignment, Timing, assign
from nimble.schedule.bounds import every_order
from nimble.schedule.frugal import frugal
from nimble.schedule.lifetimes import Home
from nimble.schedule.listing import ladder, spreads
from nimble.schedule.order import Order

_MOST_STREAMS = 16


def fit(
    order: Order, timing: Timing, homes: Sequence[Home], fastest: Assignment, limit: int
) -> tuple[Assignment, Arena]:
    """`fastest` if its arena fits in the limit, else the first to finish of those that fit."""
    tried: list[tuple[int, Assignment]] = []
    for assignment in _candidates(order, timing, homes, fastest):
        arena = arrange(homes, assignment.order, limit)
        if arena.bytes <= limit:
            return assignment, arena
        tried.append((arena.bytes, assignment))
    _, leanest = min(tried, key=lambda found: found[0])
    smallest = arrange(homes, leanest.order).bytes
    bound = every_order(homes, order)
    raise MemoryLimitError(
        f"no schedule of these {len(order)} tasks was found whose arena fits in "
        f"memory_limit={limit} bytes. The smallest found takes {smallest}, and no order of the "
        f"tasks can do with less than {bound}. Raise the limit, or make the inputs smaller",
        smallest,
        bound,
    )


def _candidates(
    order: Order, timing: Timing, homes: Sequence[Home], fastest: Assignment
) -> Iterator[Assignment]:
    yield fastest
    lean = frugal(homes, order)
    priority = [0] * len(order)
    for place, task in enumerate(lean):
        priority[task] = -place
    others = [assign(order, [order.sequence]), assign(order, [lean])]
    counts = list(ladder(min(len(fastest.streams), _MOST_STREAMS)))
    for first in (None, priority):
        others += spreads(order, timing, counts, first)
    yield from sorted(others, key=lambda a: (timing.finish(a), len(a.streams)))
