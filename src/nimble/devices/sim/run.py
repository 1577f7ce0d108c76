"""Streams of kernels in virtual time: order, waits, launches, and sharing of one GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

from nimble.devices.sim.times import Times


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

    A task starts when the one before it in its stream has ended, those it waits for have, the host
    has issued it, and the GPU is done starting another. Those launched first get all of the GPU
    that they can use, those after them what is left.
    """
    alone, arithmetic, bandwidth = (
        column.tolist() for column in (times.alone, times.arithmetic, times.bandwidth)
    )
    count = len(alone)
    rank = [0] * count
    for place, task in enumerate(launch):
        rank[task] = place
    following: list[list[tuple[int, float]]] = [[] for _ in range(count)]
    missing = [0] * count
    for stream in streams:
        for earlier, later in pairwise(stream):
            following[earlier].append((later, 0.0))
            missing[later] += 1
    for task, on in waits:
        following[on].append((task, sharing.wait))
        missing[task] += 1
    ready_at = list(issued) if issued is not None else [0.0] * count
    pending: list[tuple[float, int, int]] = []
    for task in range(count):
        if not missing[task]:
            heappush(pending, (ready_at[task], rank[task], task))
    starts, ends = [0.0] * count, [0.0] * count
    running: list[int] = []
    """By launch order."""
    left = list(alone)
    rates: list[float] = []
    now = free = 0.0
    while pending or running:
        finish = min(
            (now + left[task] / rate for task, rate in zip(running, rates, strict=True) if rate),
            default=float("inf"),
        )
        begin = max(pending[0][0], free) if pending else float("inf")
        then = min(finish, max(begin, now))
        for task, rate in zip(running, rates, strict=True):
            left[task] -= (then - now) * rate
        now = then
        if finish <= begin:
            for task in [task for task in running if left[task] <= 1e-6]:
                running.remove(task)
                ends[task] = now
                for later, delay in following[task]:
                    ready_at[later] = max(ready_at[later], now + delay)
                    missing[later] -= 1
                    if not missing[later]:
                        heappush(pending, (ready_at[later], rank[later], later))
        else:
            _, _, task = heappop(pending)
            starts[task] = now
            free = now + sharing.node
            place = sum(rank[other] < rank[task] for other in running)
            running.insert(place, task)
        rates = _rates(running, arithmetic, bandwidth, sharing.interference)
    return starts, ends


def _rates(
    running: Sequence[int],
    arithmetic: Sequence[float],
    bandwidth: Sequence[float],
    interference: float,
) -> list[float]:
    """How fast each runs, against alone: of what is left of the GPU, first come, first served."""
    if len(running) == 1:
        return [1.0]
    free_arithmetic = free_bandwidth = 1.0
    rates, used = [], []
    for task in running:
        rate = 1.0
        if arithmetic[task] > free_arithmetic:
            rate = free_arithmetic / arithmetic[task]
        if bandwidth[task] * rate > free_bandwidth:
            rate = free_bandwidth / bandwidth[task]
        free_arithmetic = max(0.0, free_arithmetic - rate * arithmetic[task])
        free_bandwidth = max(0.0, free_bandwidth - rate * bandwidth[task])
        rates.append(rate)
        used.append(rate * max(arithmetic[task], bandwidth[task]))
    beside = sum(used)
    return [
        rate / (1.0 + interference * (beside - mine))
        for rate, mine in zip(rates, used, strict=True)
    ]
