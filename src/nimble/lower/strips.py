"""Chains of operators on large images, a few rows at a time.

What does not fit in a core's own cache between one operator and the next goes to a slower one and
back. So the rows of such images are cut into strips, and a strip passes through the whole chain
before the next one begins. No row is computed twice: a strip of an operator's input ends where the
last row that its strip of the result needs ends, and begins where the strip before it ended.

Every worker has a region of neighbouring strips. Those of even regions go downwards and those of
odd ones upwards, so that two workers come to the seam between them at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from nimble.graph import Edit, Graph, Ref, Role, Task
from nimble.lower.kernels import Supported
from nimble.lower.tiles import Tiles

_ROWWISE = {"nimble.convolution", "nimble.depthwise"}
_CACHE = 1 << 20
"""Bytes of a core's own cache. The same on every machine: a saved engine is cut anew where it is
loaded, and has to come out as it was."""
_STRIP = 3 << 17
"""Bytes of input and result that a strip of an operator may have."""


def in_strips(graph: Graph, workers: int, supported: Supported) -> Graph:
    """The graph with its chains on large images cut into strips, in the order in which workers
    shall run them."""
    edit = Edit(graph)
    chains = {chain[-1]: chain for chain in _chains(graph, workers)}
    inside = {t for chain in chains.values() for t in chain}
    for t, task in enumerate(graph.tasks):
        if t not in inside:
            edit.tasks.append(task)
        elif t in chains:
            tasks = [graph.tasks[m] for m in chains[t]]
            edit.tasks += _Strips(edit, tasks, workers).made(supported)
    return edit.done()


def _chains(graph: Graph, workers: int) -> Iterator[list[int]]:
    """Runs of neighbouring tasks, each of which reads what the one before it writes, that pass on
    more than fits in the workers' caches; nobody else reads what lies between."""
    chain: list[int] = []
    for t, task in enumerate(graph.tasks):
        if chain and not _continues(graph, chain, task):
            yield from _worth_it(graph, chain, workers)
            chain = []
        if task.op in _ROWWISE and len(graph[task.writes[0]].shape) == 4:
            chain.append(t)
    yield from _worth_it(graph, chain, workers)


def _continues(graph: Graph, chain: list[int], task: Task) -> bool:
    last = graph.tasks[chain[-1]].writes[0]
    if task.op not in _ROWWISE or task.args[0] != Ref(last):
        return False
    return graph[last].is_root and graph[last].role is Role.INTERMEDIATE


def _worth_it(graph: Graph, chain: list[int], workers: int) -> Iterator[list[int]]:
    """The parts of a chain that pass on large images. Between two of them lies one that stays in
    the caches."""
    part: list[int] = []
    for t in chain:
        part.append(t)
        if graph[graph.tasks[t].writes[0]].span <= workers * _CACHE * 3 // 4:
            if len(part) > 1 and _is_closed(graph, part):
                yield part
            part = []
    if len(part) > 1 and _is_closed(graph, part):
        yield part


def _is_closed(graph: Graph, chain: list[int]) -> bool:
    """Whether what the tasks of a chain pass on is read in the chain only."""
    members = set(chain)
    return all(
        reader in members
        for t in chain[:-1]
        for reader in _readers(graph, graph.tasks[t].writes[0])
    ) and not any(graph.homes[v] == graph.tasks[t].writes[0] for t in chain for v in graph.outputs)


def _readers(graph: Graph, v: int) -> Iterator[int]:
    for value in graph.values:
        if value.id == v or value.base == v:
            yield from graph.readers.get(value.id, ())


@dataclass
class _Strips:
    """The strips of one chain."""

    edit: Edit
    tasks: list[Task]
    workers: int

    def made(self, supported: Supported) -> list[Task]:
        """In order; the chain as it is if it cannot be cut."""
        count = self._count()
        while (lines := self._lines(count)) is None:
            count -= self.workers
            if count < self.workers:
                return self.tasks
        cut: list[list[Task]] = []
        for task, mine in zip(self.tasks, lines, strict=True):
            tiles = Tiles(self.edit, task, self.workers, set()).between(pairwise(mine))
            if tiles is None or not all(supported(self.edit.values, tile) for tile in tiles):
                return self.tasks
            high = mine[-1]
            cut.append(
                [
                    replace(tile, kernel=task.kernel, cost=max(1, task.cost * (b - a) // high))
                    for tile, (a, b) in zip(tiles, pairwise(mine), strict=True)
                ]
            )
        each = count // self.workers
        return [
            tiles[region * each + (each - 1 - step if region % 2 else step)]
            for step in range(each)
            for tiles in cut
            for region in range(self.workers)
        ]

    def _rows(self, task: Task) -> int:
        return self.edit.values[task.writes[0]].shape[2]

    def _count(self) -> int:
        """Strips: as many for each worker as keep what a strip reads and writes in the cache."""
        moved = max(
            self.edit.values[task.writes[0]].span + self.edit.values[task.args[0].id].span
            for task in self.tasks
            if isinstance(task.args[0], Ref)
        )
        return -(-moved // (self.workers * _STRIP)) * self.workers

    def _lines(self, count: int) -> list[list[int]] | None:
        """For every task, the rows of its result at which that is cut; None if there are too few.

        From the last task to the first: what a task's strip needs decides where its input is cut.
        """
        high = self._rows(self.tasks[-1])
        line = [round(high * i / count) for i in range(count + 1)]
        found = [line]
        for task, before in zip(reversed(self.tasks[1:]), reversed(self.tasks[:-1]), strict=True):
            line = self._needed(task, self._rows(before), line)
            found.append(line)
        if any(a >= b for line in found for a, b in pairwise(line)):
            return None
        return found[::-1]

    def _needed(self, task: Task, high: int, line: list[int]) -> list[int]:
        given: dict[str, Any] = dict(task.kwargs)
        (kernel, _), (stride, _) = given["kernel"], given["stride"]
        (dilation, _), (top, _) = given["dilation"], given["padding"]
        each = (len(line) - 1) // self.workers
        cuts = [0]
        for i, row in list(enumerate(line))[1:-1]:
            upwards = i // each % 2 and i % each
            below = (row - 1) * stride - top + (kernel - 1) * dilation + 1
            cuts.append(min(max(row * stride - top if upwards else below, 0), high))
        return [*cuts, high]
