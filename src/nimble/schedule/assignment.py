"""Tasks on streams, the fewest waits that keep them in order, and when they would finish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nimble.schedule.matching import fewest_waits_then_streams, join
from nimble.schedule.order import Order


@dataclass(frozen=True, slots=True)
class Assignment:
    streams: tuple[tuple[int, ...], ...]
    waits: tuple[tuple[int, int], ...]
    """Pairs (task, the task on another stream that it waits for)."""
    order: Order
    """What happens before what when the streams run and wait."""


def assign(order: Order, streams: Sequence[Sequence[int]]) -> Assignment:
    """The dependencies of `order` kept by streams, with the fewest waits.

    A wait is needed where nothing else implies it: for the edges between streams of the transitive
    reduction of dependencies and stream order together.
    """
    before = [set(parents) for parents in order.parents]
    stream_of = [0] * len(order)
    for s, stream in enumerate(streams):
        for earlier, later in pairwise(stream):
            before[later].add(earlier)
        for task in stream:
            stream_of[task] = s
    happens = Order.of(before)
    waits = (
        (task, parent)
        for task, parents in enumerate(happens.parents)
        for parent in parents
        if stream_of[task] != stream_of[parent]
    )
    return Assignment(tuple(map(tuple, streams)), tuple(waits), happens)


def concurrent(order: Order) -> Assignment:
    """Maximum logical concurrency: no two independent tasks share a stream.

    Among all such assignments one with the fewest waits and, among those, the fewest streams.
    """
    _, matching = fewest_waits_then_streams(order)
    return assign(order, join(matching.after))


Moves = tuple[tuple[int, int], ...]
"""Tasks whose results a task reads, and how much longer it takes if they are on another stream."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Nanoseconds: what each task takes, and what a wait for another stream adds."""

    tasks: tuple[int, ...]
    wait: int
    moves: tuple[Moves, ...] = ()
    """For every task; none if they cost nothing."""

    def fetch(self, task: int, stream: int, stream_of: Mapping[int, int]) -> int:
        """How much longer a task takes on a stream for what it reads from others."""
        if not self.moves:
            return 0
        return sum(ns for writer, ns in self.moves[task] if stream_of.get(writer, stream) != stream)

    @property
    def total(self) -> int:
        return sum(self.tasks)

    def critical_paths(self, order: Order) -> list[int]:
        """For every task, the longest path of tasks from its start to the end of all."""
        longest = [0] * len(order)
        for task in reversed(order.sequence):
            after = max((longest[child] for child in order.children[task]), default=0)
            longest[task] = after + self.tasks[task]
        return longest

    def finish(self, assignment: Assignment) -> int:
        """When the last task ends, if each starts as soon as its stream and its waits let it."""
        ends = [0] * len(self.tasks)
        waits = set(assignment.waits)
        stream_of = {task: s for s, stream in enumerate(assignment.streams) for task in stream}
        for task in assignment.order.sequence:
            start = max(
                (
                    ends[parent] + (self.wait if (task, parent) in waits else 0)
                    for parent in assignment.order.parents[task]
                ),
                default=0,
            )
            ends[task] = start + self.tasks[task] + self.fetch(task, stream_of[task], stream_of)
        return max(ends, default=0)
