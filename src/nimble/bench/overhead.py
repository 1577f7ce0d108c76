"""What scheduling costs: a replay's time beyond the kernels on its critical path, and a call's
beyond the replay."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from nimble import _core
from nimble.observe.timeline import Timeline
from nimble.plan import Plan

EMPTY = ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value or 0
"""A task that does next to nothing: libc's abs()."""
WARM = 6
"""Calls in a row before the one that counts."""
FEWEST, MOST, SECONDS = 3, 100, 2.0
"""Pairs of a call and a timed replay, and how long they may take if there are enough."""


@dataclass(frozen=True, slots=True)
class Overhead:
    ms: float
    """Of a replay, beyond the kernels on its critical path."""
    share: float
    """Of the replay."""
    call_ms: float
    """Of a call from Python, beyond the replay."""


def overhead(call: Callable[[], object], plan: Plan) -> Overhead:
    """Of calls in which every task is timed: what is left of each replay beyond its own critical
    path, and beyond looking at the clock. The fastest quarter's edge is taken: neighbours on the
    machine only ever add. `call` is one that replays `plan`."""

    took = 0

    def timed() -> None:
        """The last of several calls in a row, in all of which tasks are timed."""
        nonlocal took
        for _ in range(WARM):
            call()
        start = time.perf_counter_ns()
        call()
        took = time.perf_counter_ns() - start

    timer = timer_ns()
    replays: list[int] = []
    beyond: list[int] = []
    calls: list[int] = []
    end = time.perf_counter() + SECONDS
    while len(calls) < FEWEST or (len(calls) < MOST and time.perf_counter() < end):
        made = plan.replay.recorded(timed)
        path = critical(Timeline.of(plan.schedule, made.spans))
        # The clock is looked at twice a task: once within its time, once before it begins.
        replays.append(made.lasted_ns - path.tasks * timer)
        beyond.append(replays[-1] - path.ns)
        calls.append(took - made.lasted_ns)
    replay_ns, ns, call_ns = (
        statistics.quantiles(times, n=4)[0] for times in (replays, beyond, calls)
    )
    return Overhead(ns / 1e6, ns / replay_ns, call_ns / 1e6)


def timer_ns(tasks: int = 1000) -> int:
    """What a task that does nothing seems to take: the cost of looking at the clock."""
    tape = _core.Tape(streams=1, tasks=tasks, slots=0)
    for task in range(tasks):
        tape.call(0, task, EMPTY, 0)
    tape.finish()
    tape.record()
    return int(statistics.median(stop - start for _, _, start, stop in tape.record()))


@dataclass(frozen=True, order=True, slots=True)
class Path:
    """The longest one along streams and waits."""

    ns: int = 0
    tasks: int = 0


def critical(timeline: Timeline) -> Path:
    before: dict[int, list[int]] = {}
    for earlier, later in timeline.waits:
        before.setdefault(later, []).append(earlier)
    last: dict[int, int] = {}
    ends: list[Path] = []
    # Bars are in the order of their starts, so whatever a bar follows has been seen.
    for number, bar in enumerate(timeline.bars):
        follows = before.get(number, []) + ([last[bar.stream]] if bar.stream in last else [])
        longest = max((ends[f] for f in follows), default=Path())
        ends.append(Path(longest.ns + bar.stop - bar.start, longest.tasks + 1))
        last[bar.stream] = number
    return max(ends, default=Path())
