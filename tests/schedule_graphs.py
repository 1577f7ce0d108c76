"""Small graphs to schedule: from edge lists, and at random."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from random import Random

import numpy as np
from hypothesis import strategies as st

from nimble.graph import DType, Graph, Ref, Role, Task, Value, contiguous_strides, verify
from nimble.schedule import Schedule


class Builder:
    """Adds values and tasks one by one; `graph()` gives the result, verified."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.tasks: list[Task] = []

    def value(
        self,
        role: Role = Role.INTERMEDIATE,
        shape: tuple[int, ...] = (4,),
        *,
        dtype: DType = DType.INT8,
        strides: tuple[int, ...] | None = None,
        base: int | None = None,
        offset: int = 0,
        overwrites: int | None = None,
    ) -> int:
        id = len(self.values)
        strides = contiguous_strides(shape) if strides is None else strides
        self.values.append(
            Value(id, f"v{id}", role, dtype, shape, strides, base, offset, overwrites)
        )
        return id

    def task(self, reads: Sequence[int], writes: Sequence[int], cost: int = 0) -> int:
        number = len(self.tasks)
        self.tasks.append(
            Task(
                f"t{number}",
                "op",
                tuple(Ref(v) for v in reads),
                reads=tuple(reads),
                writes=tuple(writes),
                results=tuple(writes),
                cost=cost,
            )
        )
        return number

    def graph(self, *outputs: int) -> Graph:
        inputs = tuple(v.id for v in self.values if v.role is Role.INPUT and v.is_root)
        return verify(Graph("test", tuple(self.values), tuple(self.tasks), inputs, outputs))


def from_edges(
    before: Sequence[set[int]],
    sizes: Sequence[int] | None = None,
    costs: Sequence[int] | None = None,
) -> Graph:
    """Task t reads what the tasks `before[t]` write, and writes a value of `sizes[t]` bytes."""
    build = Builder()
    source = build.value(Role.INPUT)
    read = {parent for parents in before for parent in parents}
    written = []
    for t, parents in enumerate(before):
        role = Role.INTERMEDIATE if t in read else Role.OUTPUT
        written.append(build.value(role, (sizes[t] if sizes else 100,)))
        reads = [written[p] for p in sorted(parents)] or [source]
        build.task(reads, [written[t]], costs[t] if costs else 0)
    return build.graph(*(v for t, v in enumerate(written) if t not in read))


Pairs = frozenset[tuple[int, int]]


def closure(count: int, edges: Iterable[tuple[int, int]]) -> Pairs:
    reached = np.zeros((count, count), bool)
    for a, b in edges:
        reached[a, b] = True
    for via in range(count):
        reached[reached[:, via]] |= reached[via]
    return frozenset(map(tuple, np.argwhere(reached).tolist()))


def dependency_edges(before: Sequence[set[int]]) -> set[tuple[int, int]]:
    return {(p, t) for t, parents in enumerate(before) for p in parents}


def schedule_edges(built: Schedule) -> set[tuple[int, int]]:
    edges = {pair for stream in built.streams for pair in pairwise(stream)}
    return edges | {(wait.on, wait.task) for wait in built.waits}


def happens_before(built: Schedule) -> Pairs:
    return closure(len(built.graph.tasks), schedule_edges(built))


def users(graph: Graph) -> dict[int, set[int]]:
    """Arena roots that take bytes, and the tasks that touch them; the end counts as a task."""
    found: dict[int, set[int]] = {}
    for t, task in enumerate(graph.tasks):
        for v in (*task.reads, *task.writes):
            found.setdefault(graph.homes[v], set()).add(t)
    for v in graph.outputs:
        found.setdefault(graph.homes[v], set()).add(len(graph.tasks))
    arena = {v.id for v in graph.roots(Role.INTERMEDIATE) if v.span}
    return {home: tasks for home, tasks in found.items() if home in arena}


def conflicting(graph: Graph, order: Pairs) -> set[frozenset[int]]:
    """Pairs of roots of which neither is done with before the other begins."""
    order |= {(t, len(graph.tasks)) for t in range(len(graph.tasks))}
    used = users(graph)
    return {
        frozenset((a, b))
        for a, b in combinations(used, 2)
        if not all((x, y) in order for x in used[a] for y in used[b])
        and not all((y, x) in order for x in used[a] for y in used[b])
    }


@st.composite
def dags(draw: st.DrawFn, most: int = 6) -> list[set[int]]:
    """For every task, tasks of lower number that it depends on."""
    count = draw(st.integers(1, most))
    pairs = count * (count - 1) // 2
    some, others = (draw(st.integers(0, 2**pairs - 1)) for _ in range(2))
    chosen = some & others if draw(st.booleans()) else some | others
    place = iter(range(pairs))
    return [{p for p in range(t) if chosen >> next(place) & 1} for t in range(count)]


@st.composite
def sized_dags(draw: st.DrawFn, most: int = 6) -> Graph:
    before = draw(dags(most))
    random = Random(draw(st.integers(0, 2**32)))
    sizes = [random.choice([0, 40, 64, 100, 128, 200, 300]) for _ in before]
    return from_edges(before, sizes, [random.randint(1, 9_000) for _ in before])


def nasnet_like(count: int, seed: int = 0) -> list[set[int]]:
    """Cells of five blocks; a block joins two short chains, each from an earlier block or cell."""
    random = Random(seed)
    before: list[set[int]] = []
    cells: list[int] = []
    while len(before) < count:
        sources = cells[-2:]
        blocks: list[int] = []
        for _ in range(5):
            ends: set[int] = set()
            for _ in range(2):
                found = sources + blocks
                last = {random.choice(found)} if found else set()
                for _ in range(random.choice([1, 1, 4, 6])):
                    before.append(last)
                    last = {len(before) - 1}
                ends |= last
            before.append(ends)
            blocks.append(len(before) - 1)
        before.append(set(blocks))
        cells.append(len(before) - 1)
    return before


class RandomProgram:
    """Random tasks that mix all the IR offers: views, versions in place, parts, states, tokens.

    `plain` leaves out values that are written in parts, for which the proof is careful rather than
    exact.
    """

    def __init__(self, seed: int, tasks: int, *, plain: bool = False) -> None:
        self.random = Random(seed)
        self.build = Builder()
        self.token: int | None = None
        given = (Role.INPUT, Role.PARAMETER, Role.STATE)
        self.live = [self.build.value(role, (self.random.choice([2, 4]),)) for role in given]
        kinds = [self.compute, self.compute, self.in_place, self.draw]
        if not plain:
            kinds += [self.in_parts, self.in_place_partly]
        while len(self.build.tasks) < tasks:
            self.random.choice(kinds)()

    def graph(self) -> Graph:
        kept = [v for v in self.live if self.build.values[v].role is Role.OUTPUT]
        inside = [v for v in self.live if self.build.values[v].role is Role.INTERMEDIATE]
        return self.build.graph(*kept, *inside[: self.random.randint(0, 1)])

    def some(self) -> list[int]:
        """One or two live values, or views of them."""
        chosen = self.random.sample(self.live, self.random.randint(1, 2))
        return [self.view(v) if self.random.random() < 0.3 else v for v in chosen]

    def view(self, v: int) -> int:
        size = self.build.values[v].shape[0]
        start = self.random.randrange(size)
        role = self.build.values[v].role
        return self.build.value(role, (size - start,), base=v, offset=start)

    def new(self, size: int | None = None) -> int:
        role = self.random.choice([Role.INTERMEDIATE] * 4 + [Role.OUTPUT])
        return self.build.value(role, (size or self.random.choice([1, 2, 4]),))

    def compute(self) -> None:
        results = [self.new() for _ in range(self.random.choice([1, 1, 1, 2]))]
        self.build.task(self.some(), results)
        self.live += results

    def version(self, *roles: Role) -> tuple[int, int] | None:
        writable = [v for v in self.live if self.build.values[v].role in roles]
        if not writable:
            return None
        old = self.random.choice(writable)
        below = self.build.values[old]
        return old, self.build.value(below.role, below.shape, overwrites=old)

    def in_place(self) -> None:
        if found := self.version(Role.INPUT, Role.STATE, Role.INTERMEDIATE, Role.OUTPUT):
            old, new = found
            others = [v for v in self.some() if v != old and self.random.random() < 0.5]
            self.build.task([old, *others], [new])
            self.live[self.live.index(old)] = new

    def in_place_partly(self) -> None:
        """The rest of the version is what was there before."""
        if found := self.version(Role.INTERMEDIATE, Role.OUTPUT):
            old, new = found
            self.build.task([self.random.choice(self.live)], [self.view(new)])
            self.live[self.live.index(old)] = new

    def in_parts(self) -> None:
        """Two halves of a value by two tasks: side by side, or every other element."""
        size = self.random.choice([2, 4])
        whole = self.new(size)
        role = self.build.values[whole].role
        stride, second = self.random.choice([(1, size // 2), (2, 1)])
        for offset in (0, second):
            part = self.build.value(
                role, (size // 2,), strides=(stride,), base=whole, offset=offset
            )
            self.build.task(self.some(), [part])
        self.live.append(whole)

    def draw(self) -> None:
        """As a draw from the random generator does: ordered after the one before it."""
        reads = self.some() + ([] if self.token is None else [self.token])
        self.token = self.build.value(shape=(), dtype=DType.TOKEN)
        result = self.new()
        self.build.task(reads, [result, self.token])
        self.live.append(result)
