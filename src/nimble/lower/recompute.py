"""Tasks run twice, so that less has to be kept in between.

What a training step computes on its way forward is needed again on its way back, in the opposite
order: at the turn, everything is alive at once. Much of it can be dropped there and computed again
shortly before it is needed, from what is kept anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nimble.graph import DType, Edit, Graph, Role, Task, align
from nimble.graph.dependencies import older
from nimble.graph.edit import reading
from nimble.rewrite.operators import pure_tasks

_AGAIN = " again "
_DEEPEST = 12
"""Tasks to run again for one value."""
_SMALL = 8
"""What is this many times smaller than a dropped value may be kept for the sake of it."""


def recompute(graph: Graph, limit: int) -> Graph | None:
    """The graph with some of its tasks run again late, so that in its order at most `limit` bytes
    are alive at any time; None if no such graph is found. Costs decide what is run again."""
    tasks = len(graph.tasks)
    while len(graph.tasks) < 3 * tasks:
        look = _Look(graph)
        if look.most <= limit:
            return graph
        best = max(look.chances(), key=lambda chance: chance.worth, default=None)
        if best is None:
            return None
        graph = _taken(graph, best, len(graph.tasks) - tasks)
    return None


def is_again(task: Task) -> bool:
    """Whether a task, or the one it is a tile of, runs for the second time."""
    return _AGAIN in task.name


@dataclass(frozen=True, slots=True)
class _Chance:
    """A value that could be dropped at the peak."""

    home: int
    before: int
    """The task before which it is needed again."""
    after: int
    """A value that is there only after the peak."""
    tasks: tuple[int, ...]
    """What has to run again for it, in their order."""
    worth: float
    """Bytes for a nanosecond."""


class _Look:
    """What is alive when in one order of tasks, and what could be dropped where most is."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._pure = pure_tasks(graph)
        self._size = {
            root.id: align(root.span)
            for root in graph.roots(Role.INTERMEDIATE)
            if root.dtype is not DType.TOKEN
        }
        self._uses: dict[int, list[int]] = {home: [] for home in self._size}
        self._gone: dict[int, int] = {}
        """Contents → the first task that writes over them."""
        for t, task in enumerate(graph.tasks):
            for home in {graph.homes[v] for v in (*task.reads, *task.writes)} & self._size.keys():
                self._uses[home].append(t)
            for v in task.writes:
                for content in older(graph, v):
                    self._gone.setdefault(content, t)
        self._kept = {graph.homes[v] for v in graph.outputs}
        self.most, self._peak = self._find_peak()

    def _find_peak(self) -> tuple[int, int]:
        change = [0] * (len(self.graph.tasks) + 1)
        for home, uses in self._uses.items():
            if uses:
                change[uses[0]] += self._size[home]
                if home not in self._kept:
                    change[uses[-1] + 1] -= self._size[home]
        most = alive = where = 0
        for t, more in enumerate(change):
            alive += more
            if alive > most:
                most, where = alive, t
        return most, where

    def chances(self) -> Iterator[_Chance]:
        peak = self._peak
        for home, uses in self._uses.items():
            if home in self._kept or not uses or not uses[0] < peak < uses[-1] or peak in uses:
                continue
            before = next(t for t in uses if t > peak)
            after = self._after_peak(before, home)
            tasks: dict[int, None] = {}
            kept = self._collect(home, before, self._size[home] // _SMALL, tasks)
            if kept is None or after is None or self._size[home] <= kept:
                continue
            took = sum(max(1, self.graph.tasks[t].cost) for t in tasks)
            yield _Chance(
                home, before, after, tuple(sorted(tasks)), (self._size[home] - kept) / took
            )

    def _after_peak(self, task: int, home: int) -> int | None:
        """The last value to be made, from the peak on, of those that a task reads; or else one that
        is made at the peak."""
        graph = self.graph
        made = [
            (writer, v)
            for v in graph.tasks[task].reads
            if graph.homes[v] != home and (writer := graph.writer.get(v, -1)) >= self._peak
        ]
        if made:
            return max(made)[1]
        there = [v for v in graph.tasks[self._peak].writes if self._is_there(v, task)]
        return there[0] if there else None

    def _is_there(self, v: int, task: int) -> bool:
        """Whether contents are not written over until a task."""
        return self._gone.get(self.graph.content(v).id, len(self.graph.tasks)) >= task

    def _collect(self, home: int, before: int, small: int, tasks: dict[int, None]) -> int | None:
        """Note the tasks that make a value again, and tell the bytes that have to be kept over the
        peak for them; None if it cannot be made again."""
        writer = self.graph.writer.get(home)
        if writer is None or writer not in self._pure or len(tasks) >= _DEEPEST:
            return None
        if writer in tasks:
            return 0
        tasks[writer] = None
        kept = 0
        for v in self.graph.tasks[writer].reads:
            if not self._is_there(v, before):
                return None
            other = self.graph.homes[v]
            size = self._size.get(other)
            if size is None or self._uses[other][-1] >= self._peak or other in self._kept:
                continue  # It lies elsewhere, or is alive at the peak in any case.
            if size <= small:
                kept += size
                continue
            more = self._collect(other, before, small, tasks)
            if more is None:
                return None
            kept += more
        return kept


def _taken(graph: Graph, chance: _Chance, repeated: int) -> Graph:
    """The graph with one value made again. `repeated` tasks run twice already."""
    edit = Edit(graph)
    again: dict[int, int] = {}
    """Value → its copy, which is made again."""
    repeats: list[Task] = []
    for t in chance.tasks:
        task = graph.tasks[t]
        for v in task.writes:
            value = graph[v]
            again[v] = edit.add_root(
                value.name, value.role, value.dtype, value.shape, value.strides
            )
        _add_views(edit, task, again)
        made = reading(task, again)
        repeats.append(
            replace(
                made,
                name=f"{task.name.partition(_AGAIN)[0]}{_AGAIN}{repeated + len(repeats)}",
                reads=tuple(dict.fromkeys((*made.reads, chance.after))),
                writes=tuple(again[v] for v in made.writes),
                results=tuple(None if v is None else again[v] for v in made.results),
            )
        )
    needed = {chance.home: again[chance.home]}
    edit.tasks = [*graph.tasks[: chance.before], *repeats]
    for task in graph.tasks[chance.before :]:
        _add_views(edit, task, needed)
        edit.tasks.append(reading(task, needed))
    return edit.done()


def _add_views(edit: Edit, task: Task, again: dict[int, int]) -> None:
    """Give `again` the views that a task has of what is made again."""
    for v in task.reads:
        value = edit.values[v]
        if value.base in again and v not in again:
            again[v] = edit.add_view(
                value.name,
                again[value.base],
                value.shape,
                value.strides,
                value.offset,
                value.dtype,
            )
