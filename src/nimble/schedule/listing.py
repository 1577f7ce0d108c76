"""Cost-aware list scheduling: which tasks to spread over a bounded number of streams."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from nimble.schedule.assignment import Assignment, Timing, assign
from nimble.schedule.order import Order


def spread(
    order: Order, timing: Timing, limit: int, priority: Sequence[int] | None = None
) -> Assignment:
    """At most `limit` streams; several only where that is predicted to finish sooner.

    Tasks that are ordered with every other one cut the graph into parts that run one after another.
    Each part is spread over the number of streams that ends it soonest, which may be one. Tasks of
    the highest `priority` go first: by default those with the longest path to the end.
    """
    (found,) = spreads(order, timing, (limit,), priority)
    return found


def spreads(
    order: Order, timing: Timing, limits: Iterable[int], priority: Sequence[int] | None = None
) -> Iterator[Assignment]:
    """The same for several limits; what is tried for one is not tried again for another."""
    if priority is None:
        priority = timing.critical_paths(order)
    parts = [_Part(order, timing, priority, *part) for part in parts_of(order)]
    for limit in limits:
        streams: list[list[int]] = [[]]
        for part in parts:
            for s, tasks in enumerate(_best(part, limit)):
                if s == len(streams):
                    streams.append([])
                streams[s] += tasks
        yield assign(order, [stream for stream in streams if stream])


def ladder(limit: int) -> Iterator[int]:
    """Numbers of streams worth trying: 2, 3, 4, 6, 9, 13, ... and `limit`."""
    count = 2
    while count < limit:
        yield count
        count = max(count + 1, count * 3 // 2)
    if limit > 1:
        yield limit


def parts_of(order: Order) -> Iterator[tuple[list[int], bool, bool]]:
    """Runs of tasks, and whether a task that all wait for stands before and after the run.

    That task is a part of its own, with nothing to decide.
    """
    part: list[int] = []
    leads = False
    for task in order.sequence:
        related = order.ancestors[task].bit_count() + order.descendants[task].bit_count()
        if related < len(order) - 1:
            part.append(task)
            continue
        if part:
            yield part, leads, True
        yield [task], True, True
        part, leads = [], True
    if part:
        yield part, leads, False


@dataclass(frozen=True, slots=True)
class _Part:
    order: Order
    timing: Timing
    priority: Sequence[int]
    tasks: list[int]
    leads: bool
    """The task before the part is on stream 0, and whoever is elsewhere waits for it."""
    follows: bool
    """The task after the part is on stream 0, and waits for whoever is elsewhere."""
    tried: dict[tuple[int, bool], tuple[list[list[int]], int]] = field(default_factory=dict)
    """By number of streams and `return_trip`: what came of it."""


def _best(part: _Part, limit: int) -> list[list[int]]:
    best, soonest = [part.tasks], sum(part.timing.tasks[task] for task in part.tasks)
    for count in ladder(min(limit, len(part.tasks))):
        for return_trip in (False, True) if part.timing.wait else (False,):
            if (count, return_trip) not in part.tried:
                part.tried[count, return_trip] = _list_schedule(part, count, return_trip)
            streams, end = part.tried[count, return_trip]
            if end < soonest:
                best, soonest = streams, end
        if not streams[-1]:
            break  # more streams would change nothing
    return best


def _list_schedule(part: _Part, count: int, return_trip: bool) -> tuple[list[list[int]], int]:
    """The task of highest priority that is ready goes where it ends first.

    With `return_trip`, leaving the stream of the parent that ends last is charged twice: there, and
    back. Greedy choices are short-sighted, so both ways are tried.
    """
    order, cost, wait = part.order, part.timing.tasks, part.timing.wait
    inside = set(part.tasks)
    missing = {task: sum(p in inside for p in order.parents[task]) for task in part.tasks}
    ready = [(-part.priority[task], task) for task in part.tasks if not missing[task]]
    heapify(ready)
    streams: list[list[int]] = [[] for _ in range(count)]
    free = [0] * count
    soonest_free = [(0, s) for s in range(count)]
    placed: dict[int, tuple[int, int]] = {}
    stream_of: dict[int, int] = {}
    while ready:
        _, task = heappop(ready)
        parents = sorted((placed[p] for p in order.parents[task] if p in inside), reverse=True)
        if not parents and part.leads:
            parents = [(0, 0)]
        near = {s for _, s in parents}
        elsewhere = next((s for _, s in soonest_free if s not in near), None)
        choices = []
        for s in near if elsewhere is None else near | {elsewhere}:
            start = max(free[s], next((end + wait for end, at in parents if at != s), 0))
            leaves = bool(parents) and parents[0][1] != s
            charge = wait if return_trip and leaves else 0
            fetch = part.timing.fetch(task, s, stream_of)
            choices.append((start + charge + fetch, leaves, s, start + fetch))
        _, _, s, start = min(choices)
        streams[s].append(task)
        stream_of[task] = s
        soonest_free.remove((free[s], s))
        free[s] = start + cost[task]
        insort(soonest_free, (free[s], s))
        placed[task] = free[s], s
        for child in order.children[task]:
            if child in inside:
                missing[child] -= 1
                if not missing[child]:
                    heappush(ready, (-part.priority[child], child))
    back = wait if part.follows else 0
    return streams, max(end + (back if s else 0) for s, end in enumerate(free) if streams[s])
