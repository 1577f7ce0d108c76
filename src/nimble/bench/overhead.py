"""What scheduling costs a call of Nimble: its time beyond the kernels on the critical path."""

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
"""Calls in a row; the last one counts."""
FEWEST, MOST, SECONDS = 3, 100, 2.0
"""Pairs of a call and a timed replay, and how long they may take if there are enough."""


@dataclass(frozen=True, slots=True)
class Overhead:
    ms: float
    share: float
    """Of the call."""


def overhead(call: Callable[[], object], plan: Plan) -> Overhead:
    """Calls without timers and replays with every task timed take turns, in caches equally warm.
    Of both the fastest quarter's edge is taken: neighbours on the machine only ever add, and would
    not add the same to both. `call` is one that replays `plan`."""
    timer = timer_ns()
    calls: list[int] = []
    paths: list[int] = []
    end = time.perf_counter() + SECONDS
    while len(calls) < FEWEST or (len(calls) < MOST and time.perf_counter() < end):
        for _ in range(WARM):
            start = time.perf_counter_ns()
            call()
            took = time.perf_counter_ns() - start
        spans = plan.replay.measure(plan.example)
        calls.append(took)
        paths.append(critical_ns(Timeline.of(plan.schedule, spans), timer))
    call_ns, path_ns = (statistics.quantiles(times, n=4)[0] for times in (calls, paths))
    return Overhead((call_ns - path_ns) / 1e6, (call_ns - path_ns) / call_ns)


def timer_ns(tasks: int = 1000) -> int:
    """What a task that does nothing seems to take: the cost of looking at the clock."""
    tape = _core.Tape(streams=1, tasks=tasks, slots=0)
    for task in range(tasks):
        tape.call(0, task, EMPTY, 0)
    tape.finish()
    tape.record()
    return int(statistics.median(stop - start for _, _, start, stop in tape.record()))


def critical_ns(timeline: Timeline, timer: int = 0) -> int:
    """The longest sum of task times along streams and waits, each less the timer's own cost."""
    before: dict[int, list[int]] = {}
    for earlier, later in timeline.waits:
        before.setdefault(later, []).append(earlier)
    last: dict[int, int] = {}
    ends: list[int] = []
    # Bars are in the order of their starts, so whatever a bar follows has been seen.
    for number, bar in enumerate(timeline.bars):
        follows = before.get(number, []) + ([last[bar.stream]] if bar.stream in last else [])
        took = max(bar.stop - bar.start - timer, 0)
        ends.append(max((ends[f] for f in follows), default=0) + took)
        last[bar.stream] = number
    return max(ends, default=0)
