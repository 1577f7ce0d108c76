"""Tasks that cannot be captured: they split a plan into parts that can, and run between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from nimble.graph import DType, Edit, Graph, Role, Task, dependencies, in_order
from nimble.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Step:
    """One task as it is launched."""

    task: int
    lane: int
    """The number of its stream."""
    waits: tuple[int, ...]
    """Tasks of the same part on other streams."""
    awaited: bool
    """Whether a task of the same part on another stream waits for it."""


@dataclass(frozen=True, slots=True)
class Part:
    """Tasks that are captured together; or, one after the other, are not."""

    steps: tuple[Step, ...]
    captured: bool


def split(graph: Graph, eager: Mapping[str, str]) -> Graph:
    """The graph in an order in which all tasks before a task of `eager` come before it, and those
    after it after it: tokens say so, and the proof checks them."""
    if not eager:
        return graph
    before = dependencies(graph)
    level = _levels(graph.tasks, before, eager)
    edit = Edit(graph)
    tasks = list(graph.tasks)

    def token(task: int, readers: Sequence[int]) -> None:
        made = edit.add_root(f"{tasks[task].name}.done", Role.INTERMEDIATE, DType.TOKEN, ())
        tasks[task] = replace(tasks[task], writes=(*tasks[task].writes, made))
        for reader in readers:
            tasks[reader] = replace(tasks[reader], reads=(*tasks[reader].reads, made))

    for turn in sorted({n for n, task in zip(level, tasks, strict=True) if task.name in eager}):
        mine = [t for t, n in enumerate(level) if n == turn]
        alone = [t for t in mine if tasks[t].name in eager]
        inside = [t for t in mine if tasks[t].name not in eager]
        followed = {b for t in inside for b in before[t]}
        for t in inside:
            if t not in followed:
                token(t, alone[:1])
        for earlier, later in pairwise(alone):
            token(earlier, [later])
        after = [t for t, n in enumerate(level) if n == turn + 1 and not _has(level, before, t)]
        token(alone[-1], after)
    order = sorted(range(len(tasks)), key=lambda t: (level[t], tasks[t].name in eager, t))
    edit.tasks = [tasks[t] for t in order]
    return edit.done()


def _levels(
    tasks: Sequence[Task], before: Sequence[set[int]], eager: Mapping[str, str]
) -> list[int]:
    """For every task, how many turns of eager tasks it comes after."""
    level = [0] * len(tasks)
    for t in range(len(tasks)):
        level[t] = max((level[b] + (tasks[b].name in eager) for b in before[t]), default=0)
    return level


def _has(level: Sequence[int], before: Sequence[set[int]], task: int) -> bool:
    """Whether a task comes after another of its own level."""
    return any(level[b] == level[task] for b in before[task])


def parts(schedule: Schedule, eager: Mapping[str, str], launch: Sequence[int]) -> list[Part]:
    """The schedule as it is launched, in the order of `launch`. What waits for another part needs
    no event: parts follow each other on one stream."""
    graph = schedule.graph
    lane = {t: lane for lane, stream in enumerate(schedule.streams) for t in stream}
    level = _levels(graph.tasks, dependencies(graph), eager)
    place = {t: (level[t], graph.tasks[t].name in eager) for t in lane}
    waits: dict[int, list[int]] = {}
    for wait in schedule.waits:
        if place[wait.task] == place[wait.on]:
            waits.setdefault(wait.task, []).append(wait.on)
    awaited = {on for ons in waits.values() for on in ons}
    groups: dict[tuple[int, bool], list[Step]] = {}
    for t in launch:
        step = Step(t, lane[t], tuple(waits.get(t, ())), t in awaited)
        groups.setdefault(place[t], []).append(step)
    return [Part(tuple(groups[key]), not key[1]) for key in sorted(groups)]


def launch_order(schedule: Schedule) -> list[int]:
    """All tasks, each after the one before it on its stream and after those that it waits for; of
    those that may come next, the first of the graph."""
    before: list[set[int]] = [set() for _ in schedule.graph.tasks]
    for stream in schedule.streams:
        for earlier, later in pairwise(stream):
            before[later].add(earlier)
    for wait in schedule.waits:
        before[wait.task].add(wait.on)
    return in_order(before)
