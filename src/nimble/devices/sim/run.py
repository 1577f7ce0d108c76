"""Streams of kernels in virtual time: order, waits, launches, and sharing of one GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

from nimble.devices.sim.times import Times
from nimble.errors import ScheduleError

_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Sharing:
    """Nanoseconds, and how much kernels hinder each other."""

    wait: float = 0.0
    node: float = 0.0
    interference: float = 0.0


def run(
    times: Times,
    streams: Sequence[Sequence[int]],
    waits: Sequence[tuple[int, int]],
    launch: Sequence[int],
    sharing: Sharing,
    issued: Sequence[float] | None = None,
) -> tuple[list[float], list[float]]:
    """When each task starts and ends.

    A task starts when the one before it in its stream has ended, those it waits for have, each wait
    has taken its time, the host has issued it, and the GPU is done starting another. Those launched
    first get all of the GPU that they can use, those after them what is left.
    """
    alone, processors, bandwidth = (
        column.tolist() for column in (times.alone, times.processors, times.bandwidth)
    )
    count = len(alone)
    rank = [0] * count
    for place, task in enumerate(launch):
        rank[task] = place
    following: list[list[int]] = [[] for _ in range(count)]
    before: list[int | None] = [None] * count
    awaited: list[list[int]] = [[] for _ in range(count)]
    for stream in streams:
        for earlier, later in pairwise(stream):
            following[earlier].append(later)
            before[later] = earlier
    for task, on in waits:
        following[on].append(task)
        awaited[task].append(on)
    missing = [len(ons) + (last is not None) for ons, last in zip(awaited, before, strict=True)]
    pending: list[tuple[float, int, int]] = []

    def ready(task: int) -> float:
        """A stream comes to a task's waits after the task before it, and to one after the other."""
        last = before[task]
        at = max(issued[task] if issued is not None else 0.0, 0.0 if last is None else ends[last])
        for end in sorted(ends[on] for on in awaited[task]):
            at = max(at, end) + sharing.wait
        return at

    starts, ends = [0.0] * count, [0.0] * count
    for task in range(count):
        if not missing[task]:
            heappush(pending, (ready(task), rank[task], task))
    running: list[int] = []
    """By launch order."""
    left = list(alone)
    rates: list[float] = []
    now = free = 0.0
    while pending or running:
        finish = _NEVER
        for task, rate in zip(running, rates, strict=True):
            if rate and now + left[task] / rate < finish:
                finish = now + left[task] / rate
        begin = max(pending[0][0], free) if pending else _NEVER
        then = min(finish, max(begin, now))
        for task, rate in zip(running, rates, strict=True):
            left[task] -= (then - now) * rate
        now = then
        if finish <= begin:
            close = 1e-9 * max(now, 1e3)  # Of rounding, which grows with the time.
            for task in [task for task in running if left[task] <= close]:
                running.remove(task)
                ends[task] = now
                for later in following[task]:
                    missing[later] -= 1
                    if not missing[later]:
                        heappush(pending, (ready(later), rank[later], later))
        else:
            _, _, task = heappop(pending)
            starts[task] = now
            free = now + sharing.node
            place = sum(rank[other] < rank[task] for other in running)
            running.insert(place, task)
        rates = _rates(running, processors, bandwidth, sharing.interference)
    if any(missing):
        stuck = next(task for task, count in enumerate(missing) if count)
        raise ScheduleError(f"deadlock: task {stuck} waits, through others, for itself")
    return starts, ends


def _rates(
    running: Sequence[int],
    processors: Sequence[float],
    bandwidth: Sequence[float],
    interference: float,
) -> list[float]:
    """How fast each runs, against alone: of what is left of the GPU, first come, first served."""
    if len(running) == 1:
        return [1.0]
    free_processors = free_bandwidth = 1.0
    beside = 0.0
    rates, used = [], []
    for task in running:
        rate, mine, moved = 1.0, processors[task], bandwidth[task]
        if mine > free_processors:
            rate = free_processors / mine
        if moved * rate > free_bandwidth:
            rate = free_bandwidth / moved
        free_processors -= rate * mine
        free_bandwidth -= rate * moved
        if free_processors < 0.0:  # Of rounding.
            free_processors = 0.0
        if free_bandwidth < 0.0:
            free_bandwidth = 0.0
        rates.append(rate)
        held = rate * (mine if mine > moved else moved)
        used.append(held)
        beside += held
    return [
        rate / (1.0 + interference * (beside - held))
        for rate, held in zip(rates, used, strict=True)
    ]
