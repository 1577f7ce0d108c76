"""Nimble itself, with `workers` as its threads."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

import nimble
from nimble.bench.contestants import Run
from nimble.bench.contestants.calls import naturally
from nimble.engine import Engine
from nimble.observe.timeline import Timeline


def load(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], threads: int
) -> Run:
    engine = nimble.compile(model, args, kwargs, workers=threads, progress=False)
    return Replayed(engine, args, kwargs)


class Replayed:
    """An engine that is called with flat tensors, and can say what its scheduling costs."""

    def __init__(self, engine: Engine, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._engine = engine
        self._run = naturally(engine, args, kwargs)

    def __call__(self, tensors: list[torch.Tensor]) -> Any:
        return self._run(tensors)

    def overhead_ms(self, tensors: list[torch.Tensor], times: int = 15) -> float:
        """A call's time beyond the kernels on its critical path: what a call costs that does next
        to nothing, and the gaps between kernels in a replay. (A whole call less
        its kernels would not do: timed one by one, in colder caches, they take longer.)"""
        engine = nimble.compile(_next_to_nothing, tuple(tensors[:1]), progress=False)
        calls, gaps = [], []
        for _ in range(times):
            engine(*tensors[:1])
            start = time.perf_counter_ns()
            engine(*tensors[:1])
            calls.append(time.perf_counter_ns() - start)
            timeline = self._engine.timeline()
            gaps.append(timeline.duration - critical_ns(timeline))
        return (statistics.median(calls) + statistics.median(gaps)) / 1e6


def _next_to_nothing(*tensors: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.zeros(1), *(tensor.flatten()[:1] for tensor in tensors)])


def critical_ns(timeline: Timeline) -> int:
    """The longest sum of task times along streams and waits."""
    before: dict[int, list[int]] = {}
    for earlier, later in timeline.waits:
        before.setdefault(later, []).append(earlier)
    last: dict[int, int] = {}
    ends: list[int] = []
    # Bars are in the order of their starts, so whatever a bar follows has been seen.
    for number, bar in enumerate(timeline.bars):
        follows = before.get(number, []) + ([last[bar.stream]] if bar.stream in last else [])
        ends.append(max((ends[f] for f in follows), default=0) + bar.stop - bar.start)
        last[bar.stream] = number
    return max(ends, default=0)
