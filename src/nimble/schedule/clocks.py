"""Happens-before from streams and waits alone, by vector clocks. Trusts nothing it is given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nimble.errors import ProofError
from nimble.graph import Graph
from nimble.schedule.plan import Wait

_MOST_ENTRIES = 1 << 27


class Clocks:
    """For every task, how far each stream is known to have come when the task starts."""

    def __init__(
        self, graph: Graph, streams: Sequence[Sequence[int]], waits: Sequence[Wait]
    ) -> None:
        self.graph = graph
        count = len(graph.tasks)
        if count * len(streams) > _MOST_ENTRIES:
            raise ProofError(f"{count} tasks on {len(streams)} streams are too many to check")
        self.stream = np.full(count, -1, np.int64)
        self.place = np.zeros(count, np.int64)
        for s, stream in enumerate(streams):
            for place, task in enumerate(stream):
                if type(task) is not int or not 0 <= task < count:
                    raise ProofError(f"stream {s} runs task {task!r}, which does not exist")
                if self.stream[task] >= 0:
                    raise ProofError(f"{self.name(task)} runs twice: on stream {s} and before")
                self.stream[task], self.place[task] = s, place + 1
        if count and self.stream.min() < 0:
            raise ProofError(f"{self.name(int(self.stream.argmin()))} is on no stream")
        self.seen = self._run(streams, self._waits(waits))

    def name(self, task: int | np.int64) -> str:
        return f"task {task} {self.graph.tasks[task].name!r}"

    def before(self, earlier: NDArray[np.int64], later: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Row a, column b: whether `earlier[a]` ends before `later[b]` starts."""
        known = self.seen[later[None, :], self.stream[earlier][:, None]]
        return known >= self.place[earlier][:, None]

    def _waits(self, waits: Sequence[Wait]) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.graph.tasks]
        for wait in waits:
            for task in (wait.task, wait.on):
                if type(task) is not int or not 0 <= task < len(found):
                    raise ProofError(f"{wait} names task {task!r}, which does not exist")
            if self.stream[wait.task] == self.stream[wait.on]:
                raise ProofError(
                    f"{self.name(wait.task)} waits for {self.name(wait.on)} on its own stream"
                )
            found[wait.task].append(wait.on)
        return found

    def _run(self, streams: Sequence[Sequence[int]], waits: list[list[int]]) -> NDArray[np.int32]:
        """Run every stream as far as its waits let it, until all are at their ends."""
        seen = np.zeros((len(waits), len(streams)), np.int32)
        waiting: list[list[int]] = [[] for _ in waits]
        missing = [len(ons) for ons in waits]
        for task, ons in enumerate(waits):
            for on in ons:
                waiting[on].append(task)
        reached = [0] * len(streams)
        active = list(range(len(streams)))
        while active:
            s = active.pop()
            while reached[s] < len(streams[s]) and not missing[streams[s][reached[s]]]:
                task = streams[s][reached[s]]
                if reached[s]:
                    seen[task] = seen[streams[s][reached[s] - 1]]
                    seen[task, s] = reached[s]
                for on in waits[task]:
                    np.maximum(seen[task], seen[on], out=seen[task])
                    seen[task, self.stream[on]] = max(seen[task, self.stream[on]], self.place[on])
                reached[s] += 1
                for other in waiting[task]:
                    missing[other] -= 1
                    if not missing[other] and self.stream[other] != s:
                        active.append(int(self.stream[other]))
        for s, stream in enumerate(streams):
            if reached[s] < len(stream):
                stuck = stream[reached[s]]
                on = next(on for on in waits[stuck] if reached[self.stream[on]] < self.place[on])
                raise ProofError(
                    f"deadlock: {self.name(stuck)} waits for {self.name(on)}, "
                    "which is stuck behind it"
                )
        return seen
