"""Which streams to use on a GPU: Nimble's, fewer, or one, by predicted time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from nimble.devices.sim.constants import Constants, Host, default_constants, find_host
from nimble.devices.sim.gpus import Gpu, find_gpu
from nimble.devices.sim.predict import Prediction, costs, critical_path, predict, replay
from nimble.devices.sim.times import Times, times
from nimble.devices.sim.work import Work
from nimble.errors import InputError, MemoryLimitError
from nimble.graph import Graph
from nimble.schedule import Schedule, schedule, schedule_on
from nimble.schedule.assignment import Assignment, Timing, assign, concurrent
from nimble.schedule.build import order_of
from nimble.schedule.listing import ladder, parts_of, spreads
from nimble.schedule.order import Order

_CLEARLY = 0.98
"""Several streams have to be predicted to take at most this much of the time on one: they take more
memory, and the model errs."""

_HOPELESS = 1.1
"""Of the best time so far: no other order of launching makes up for that."""

MOST_STREAMS = 32
"""PyTorch hands out streams of a pool of so many: a further one would be one of those again."""


class Choice(NamedTuple):
    schedule: Schedule
    prediction: Prediction
    reasons: tuple[str, ...]
    """What was tried, and what each was predicted to take; the one chosen first."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    name: str
    assignment: Assignment
    launch: tuple[int, ...]
    starts: list[float]
    ends: list[float]

    @property
    def ns(self) -> float:
        return max(self.ends, default=0.0)

    @property
    def said(self) -> str:
        count = len(self.assignment.streams)
        return f"{self.name} ({count} stream{'' if count == 1 else 's'}): {self.ns / 1e6:.3f} ms"


def choose_for_gpu(
    graph: Graph,
    gpu: Gpu | str,
    streams: int | None = None,
    memory_limit: int | None = None,
    *,
    constants: Constants | None = None,
) -> Choice:
    """The schedule with the best prediction, that prediction, and what was compared.

    Tried are one stream, Nimble's exact assignment, at most 2, 3, 4, 6 ... streams, each launched
    in several orders, and the best of these for each part of the network. `streams` is the most
    that may be used, of 32 at most; 1 asks for one stream. `memory_limit` caps the arena.
    """
    if streams is not None and not 1 <= streams <= MOST_STREAMS:
        raise InputError(f"streams={streams}: expected a number from 1 to {MOST_STREAMS}, or None")
    if memory_limit is not None and memory_limit < 0:
        raise InputError(f"memory_limit={memory_limit}: expected a number of bytes, or None")
    found = find_gpu(gpu) if isinstance(gpu, str) else gpu
    search = _Search(graph, found, constants or default_constants())
    tried = sorted(search.candidates(streams or MOST_STREAMS), key=lambda c: c.ns)
    one = next(c for c in tried if len(c.assignment.streams) <= 1)
    tried = [c for c in tried if c is one or c.ns <= _CLEARLY * one.ns] + [
        c for c in tried if c is not one and c.ns > _CLEARLY * one.ns
    ]
    said = [c.said for c in tried]
    for candidate in tried:
        try:
            built = search.built(candidate, memory_limit)
        except MemoryLimitError:
            continue
        prediction = predict(built, found, launch=candidate.launch, constants=search.constants)
        said.remove(candidate.said)
        said.insert(0, candidate.said)
        return Choice(_with_prediction(built, prediction), prediction, tuple(said))
    # Orders that keep fewer bytes alive may fit; if none does, the error says what is possible.
    most = 1 if streams == 1 else len(tried[0].assignment.streams)
    built = schedule(graph, streams=most, costs=search.costs, memory_limit=memory_limit)
    prediction = predict(built, found, constants=search.constants)
    said.insert(0, f"the fastest within {memory_limit} bytes: {prediction.ms:.3f} ms")
    return Choice(_with_prediction(built, prediction), prediction, tuple(said))


def _with_prediction(built: Schedule, prediction: Prediction) -> Schedule:
    decision = replace(built.decision, predicted_ns=round(prediction.ns))
    return replace(built, decision=decision)


class _Search:
    def __init__(self, graph: Graph, gpu: Gpu, constants: Constants) -> None:
        self.graph, self.gpu, self.constants = graph, gpu, constants
        self.costs = costs(gpu, constants)
        self._host: Host = find_host("recent")
        self._order: Order = order_of(graph)
        self._taken: Times = times(Work.of(graph), gpu, constants)
        alone = tuple(max(1, round(ns)) for ns in self._taken.alone)
        self._timing = Timing(alone, self.costs.wait)

    def candidates(self, most: int) -> Iterator[_Candidate]:
        order = self._order
        everything = [order.sequence] if order.sequence else []
        one = self._tried("one stream", assign(order, everything), order.sequence)
        yield one
        bound = max(critical_path(self.graph, self._taken.alone), self._taken.work)
        if most == 1 or bound >= _CLEARLY * one.ns:
            return  # Nothing to be had.
        widest = concurrent(order)
        assignments = [] if len(widest.streams) > most else [("Nimble's assignment", widest)]
        counts = list(ladder(min(most, len(widest.streams))))
        fewer = spreads(order, self._timing, counts)
        assignments += zip((f"at most {count}" for count in counts), fewer, strict=True)
        seen: set[tuple[tuple[int, ...], ...]] = set()
        tried = [one]
        for name, assignment in assignments:
            if assignment.streams in seen or len(assignment.streams) < 2:
                continue
            seen.add(assignment.streams)
            best: _Candidate | None = None
            for how, launch in self._launches(assignment):
                if best is not None and best.ns > _HOPELESS * min(c.ns for c in tried):
                    break
                found = self._tried(f"{name}, {how}", assignment, launch)
                best = found if best is None or found.ns < best.ns else best
            assert best is not None
            tried.append(best)
            yield best
        mixed = self._mixed(tried)
        if mixed is not None:
            yield mixed

    def _tried(self, name: str, assignment: Assignment, launch: Sequence[int]) -> _Candidate:
        starts, ends = replay(
            self._taken, assignment.streams, assignment.waits, launch, "graph", self.constants,
            self._host,
        )  # fmt: skip
        return _Candidate(name, assignment, tuple(launch), starts, ends)

    def _launches(self, assignment: Assignment) -> Iterator[tuple[str, Sequence[int]]]:
        """Orders in which tasks are handed over. Of those that may go next: the first of the graph;
        the one with most to do after it; the one that asks least of the GPU, so that more run
        beside each other."""
        happens = assignment.order
        paths = self._timing.critical_paths(happens)
        asks = [
            max(a, b)
            for a, b in zip(
                self._taken.processors.tolist(), self._taken.bandwidth.tolist(), strict=True
            )
        ]
        yield "launched in order", _in_order(happens, range(len(happens)))
        yield "longest path first", _in_order(happens, [-path for path in paths])
        yield "smallest demand first", _in_order(happens, asks)

    def _mixed(self, tried: Sequence[_Candidate]) -> _Candidate | None:
        """For every part between tasks that all others wait for, what was best for it."""
        parts = list(parts_of(self._order))
        if len(parts) < 3:
            return None
        streams: list[list[int]] = [[]]
        launch: list[int] = []
        for part, _, _ in parts:
            inside = set(part)
            best = min(tried, key=lambda c: _span(c, part))
            mine = [[t for t in stream if t in inside] for stream in best.assignment.streams]
            mine = sorted(filter(None, mine), key=lambda s: -sum(self._timing.tasks[t] for t in s))
            for s, tasks in enumerate(mine):
                if s == len(streams):
                    streams.append([])
                streams[s] += tasks
            launch += [t for t in best.launch if t in inside]
        mixed = assign(self._order, [stream for stream in streams if stream])
        return self._tried("the best for each part", mixed, launch)

    def built(self, candidate: _Candidate, memory_limit: int | None) -> Schedule:
        return schedule_on(
            self.graph,
            candidate.assignment.streams,
            reason=f"{candidate.said}, predicted for {self.gpu.name}",
            costs=self.costs,
            memory_limit=memory_limit,
        )


def _span(candidate: _Candidate, part: Sequence[int]) -> float:
    return max(candidate.ends[t] for t in part) - min(candidate.starts[t] for t in part)


def _in_order(happens: Order, key: Sequence[float]) -> list[int]:
    """An allowed order, lowest key first where there is a choice."""
    from heapq import heapify, heappop, heappush

    missing = [len(parents) for parents in happens.parents]
    ready = [(key[task], task) for task, count in enumerate(missing) if not count]
    heapify(ready)
    sequence = []
    while ready:
        _, task = heappop(ready)
        sequence.append(task)
        for child in happens.children[task]:
            missing[child] -= 1
            if not missing[child]:
                heappush(ready, (key[child], child))
    return sequence
