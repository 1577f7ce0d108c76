"""Which tasks must happen before which, from the bytes that they read and write."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from nimble.graph.ir import Graph
from nimble.graph.regions import apart


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a value lies: bytes `start` to `stop` of the memory of root `home`."""

    home: int
    start: int
    stop: int

    def overlaps(self, other: Extent) -> bool:
        return self.home == other.home and self.start < other.stop and other.start < self.stop


def extent(graph: Graph, id: int) -> Extent:
    value = graph[id]
    return Extent(graph.homes[id], value.offset, value.offset + value.span)


def writers_of(graph: Graph) -> dict[int, tuple[int, ...]]:
    """For every value: the tasks that write contents it shows, directly or through a view."""
    by_content: dict[int, list[tuple[int, int]]] = {}
    for t, task in enumerate(graph.tasks):
        for v in task.writes:
            by_content.setdefault(graph.content(v).id, []).append((t, v))
    found: dict[int, tuple[int, ...]] = {}
    for value in graph.values:
        written = by_content.get(graph.content(value.id).id, ())
        found[value.id] = tuple(
            dict.fromkeys(t for t, v in written if v == value.id or _touch(graph, value.id, v))
        )
    return found


def _touch(graph: Graph, a: int, b: int) -> bool:
    """Whether two values may have elements in common. Their bytes may interleave without that: two
    slices of channels, say."""
    if not extent(graph, a).overlaps(extent(graph, b)):
        return False
    return graph[a].base is None or graph[b].base is None or not apart(graph[a], graph[b])


def dependencies(graph: Graph) -> list[set[int]]:
    """For every task: the tasks that must happen before it.

    Reads wait for the writers of what they read; a task that overwrites memory waits for those who
    wrote or still read what was there.
    """
    known: list[set[int]] | None = graph.__dict__.get("_dependencies")
    if known is None:
        # Many ask, and a graph does not change.
        known = graph.__dict__["_dependencies"] = _dependencies(graph)
    return [set(before) for before in known]


def _dependencies(graph: Graph) -> list[set[int]]:
    writers = writers_of(graph)
    before: list[set[int]] = [set() for _ in graph.tasks]
    for t, task in enumerate(graph.tasks):
        for v in task.reads:
            before[t].update(w for w in writers[v] if w != t)
    for earlier, later in (*overwritten(graph), *showing_through(graph)):
        before[later].add(earlier)
    return before


def in_order(before: Sequence[Iterable[int]], first: Container[int] = ()) -> list[int]:
    """All tasks, each after those before it: where there is a choice one of `first`, and else the
    lowest number. Those that wait for themselves, through others, are left out."""
    children: list[list[int]] = [[] for _ in before]
    missing = [0] * len(before)
    for task, parents in enumerate(before):
        for parent in parents:
            children[parent].append(task)
            missing[task] += 1
    ready = [(task not in first, task) for task, count in enumerate(missing) if count == 0]
    heapify(ready)
    sequence = []
    while ready:
        _, task = heappop(ready)
        sequence.append(task)
        for child in children[task]:
            missing[child] -= 1
            if missing[child] == 0:
                heappush(ready, (child not in first, child))
    return sequence


def older(graph: Graph, id: int) -> Iterator[int]:
    """The contents that were in the memory of `id` before its own, latest first."""
    below = graph.content(id)
    while below.overwrites is not None:
        below = graph.content(below.overwrites)
        yield below.id


def showing_through(graph: Graph) -> Iterator[tuple[int, int]]:
    """Pairs (task that wrote older contents, task that reads a newer version of them).

    A version may be written in part; the rest of it is what was there before.
    """
    written: dict[int, list[tuple[int, Extent]]] = {}
    for t, task in enumerate(graph.tasks):
        for v in task.writes:
            written.setdefault(graph.content(v).id, []).append((t, extent(graph, v)))
    for t, task in enumerate(graph.tasks):
        for v in task.reads:
            for content in older(graph, v):
                for other, where in written.get(content, ()):
                    if other != t and where.overlaps(extent(graph, v)):
                        yield other, t


def overwritten(graph: Graph) -> list[tuple[int, int]]:
    """Pairs (task that touches older contents, task that overwrites them)."""
    if not any(value.overwrites is not None for value in graph.values):
        return []
    touches: dict[int, list[tuple[int, Extent]]] = {}
    for t, task in enumerate(graph.tasks):
        for v in (*task.reads, *task.writes):
            touches.setdefault(graph.content(v).id, []).append((t, extent(graph, v)))
    pairs = []
    for t, task in enumerate(graph.tasks):
        for v in task.writes:
            mine = extent(graph, v)
            for content in older(graph, v):
                for other, where in touches.get(content, ()):
                    if other != t and mine.overlaps(where):
                        pairs.append((other, t))
    return pairs
