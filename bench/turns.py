"""Calls timed in turn, so that a slow moment of the machine meets all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence


def in_turn(calls: Sequence[Callable[[], object]], seconds: float) -> list[list[float]]:
    """Milliseconds of each."""
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for mine, call in zip(times, calls, strict=True):
            for _ in range(5):
                start = time.perf_counter_ns()
                call()
                mine.append((time.perf_counter_ns() - start) / 1e6)
    return times
