"""Costs measured on this machine: how long tasks and whole replays take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from nimble.devices.cpu.replay import Replay
from nimble.devices.device import length
from nimble.graph import Graph

BYTE_NS = 0.03
"""For each byte that another core has written last: thirty gigabytes a second."""
_NO_LIMIT = 1 << 62
WAIT_NS = 400
"""From the end of a task to the start of one that waits for it on another core: a cache line that
travels, and a thread that has been spinning."""


def with_measured_costs(graph: Graph, replay: Replay, inputs: list[torch.Tensor]) -> Graph:
    """The graph with `Task.cost` set to the fastest of a few timed runs."""
    best: dict[int, int] = {}
    for spans in replay.measure(inputs):
        for span in spans:
            took = max(span.stop - span.start, 1)
            best[span.task] = min(best.get(span.task, took), took)
    return graph.with_tasks(replace(task, cost=best[t]) for t, task in enumerate(graph.tasks))


def times_ns(replays: Sequence[Replay], inputs: list[torch.Tensor]) -> list[list[int]]:
    """How long whole replays of each took, measured in turn: up to forty, and two of those that
    take long."""
    times: list[list[int]] = [[] for _ in replays]
    start = time.perf_counter_ns()
    for least, most_ns in ((2, _NO_LIMIT), (4, 2_000_000_000), (40, 200_000_000)):
        while len(times[-1]) < least and time.perf_counter_ns() < start + most_ns:
            for mine, replay in zip(times, replays, strict=True):
                mine += map(length, replay.measure(inputs, runs=2))
    return times
