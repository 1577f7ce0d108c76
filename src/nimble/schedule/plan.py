"""The Schedule: everything that will happen at run time, and why it was decided so."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from nimble.graph import Graph
from nimble.schedule.bounds import heaviest_antichain
from nimble.schedule.lifetimes import homes, peak, precedes
from nimble.schedule.order import Order


@dataclass(frozen=True, slots=True)
class Wait:
    """`task` starts only after `on`, a task of another stream, has ended."""

    task: int
    on: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What the choice of streams was based on. Times are predictions, in nanoseconds."""

    tasks: int
    meg_edges: int
    """Edges of the minimum equivalent graph."""
    chains: int
    """Chains that a maximum matching on those edges leaves: `meg_edges - tasks + chains` is the
    fewest waits at maximum logical concurrency."""
    width: int
    """The most tasks of which no two depend on one another."""
    concurrency: int
    """The most tasks that this schedule lets run at the same time."""
    predicted_ns: int
    sequential_ns: int
    critical_path_ns: int
    reason: str


@dataclass(frozen=True)
class Schedule:
    graph: Graph
    streams: tuple[tuple[int, ...], ...]
    """Task numbers, in the order in which each stream runs them."""
    waits: tuple[Wait, ...]
    offsets: tuple[int | None, ...]
    """For every value of the arena the byte where it starts; None for all others, for tokens, and
    for values in memory that no task touches."""
    arena_bytes: int
    decision: Decision

    @cached_property
    def arena_lower_bound(self) -> int:
        """What no placement of this schedule's values can go below."""
        before: list[set[int]] = [set() for _ in self.graph.tasks]
        for stream in self.streams:
            for earlier, later in pairwise(stream):
                before[later].add(earlier)
        for wait in self.waits:
            before[wait.task].add(wait.on)
        needed = homes(self.graph)
        return heaviest_antichain([h.size for h in needed], precedes(needed, Order.of(before)))

    @cached_property
    def sequential_lower_bound(self) -> int:
        """The same bound for the graph's tasks in one stream, in their order in the graph."""
        return peak(homes(self.graph), range(len(self.graph.tasks)))

    @cached_property
    def intermediates_bytes(self) -> int:
        """What the arena would take if no two values shared memory."""
        return sum(home.size for home in homes(self.graph))
