"""An oracle for the proof: run a schedule on symbolic memory in every order its waits allow.

A task reads at its start, leaves its results torn while it runs, and writes them at its end. It has
to find what it would find if all ran in order, each root in memory of its own; twice in a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from nimble.graph import Graph, Role, Value
from nimble.schedule import Schedule

Cell = tuple[object, int]
Memory = dict[Cell, object]
REPLAYS = 2


def safe_in_every_order(built: Schedule) -> bool:
    return Simulation(built).all_orders_agree()


def elements(value: Value) -> Iterator[int]:
    """The byte offsets of a value's elements from its home's start, every byte of each."""
    size = value.dtype.itemsize
    for index in product(*(range(n) for n in value.shape)):
        first = sum(i * s for i, s in zip(index, value.strides, strict=True)) * size
        yield from range(value.offset + first, value.offset + first + size)


def cells(graph: Graph, offsets: tuple[int | None, ...] | None) -> list[list[Cell]]:
    """Where each value lies. One that is written but has no bytes has a cell for its order."""
    found: list[list[Cell]] = []
    for value in graph.values:
        home = graph.home(value.id)
        where: object = home.id
        shift = 0
        if offsets is not None and home.role is Role.INTERMEDIATE and value.span:
            where, shift = "arena", offsets[home.id] or 0
        bytes_ = [(where, shift + at) for at in elements(value)]
        if not bytes_ and value.id in graph.writer:
            bytes_ = [(f"order of {value.id}", 0)]
        found.append(bytes_)
    return found


def given(graph: Graph, memory: Memory, replay: int) -> None:
    """What the caller puts in: inputs at every replay, everything else of its own once."""
    for root in graph.roots(Role.INPUT, Role.PARAMETER, Role.CONSTANT, Role.STATE):
        if replay == 0 or root.role is Role.INPUT:
            for at in range(root.span):
                memory[root.id, at] = ("given", root.id, at, replay)


def read(memory: Memory, where: list[Cell]) -> tuple[object, ...]:
    return tuple(memory.get(cell, "garbage") for cell in where)


def read_at_end(graph: Graph) -> list[int]:
    kept = [graph.final(root.id) for root in graph.roots(Role.INPUT, Role.STATE)]
    return [*graph.outputs, *kept]


class Simulation:
    def __init__(self, built: Schedule) -> None:
        self.graph = built.graph
        self.streams = built.streams
        self.waits: dict[int, list[int]] = {}
        for wait in built.waits:
            self.waits.setdefault(wait.task, []).append(wait.on)
        self.where = cells(self.graph, built.offsets)
        self.expected: dict[tuple[int, int], tuple[object, ...]] = {}
        self.expected_end: list[tuple[object, ...]] = []
        self.run_in_order()

    def results(self, task: int, v: int, inputs: tuple[object, ...]) -> list[object]:
        return [hash((task, v, i, inputs)) for i in range(len(self.where[v]))]

    def run_in_order(self) -> None:
        graph = self.graph
        where = cells(graph, None)
        memory: Memory = {}
        for replay in range(REPLAYS):
            given(graph, memory, replay)
            for t, task in enumerate(graph.tasks):
                inputs = tuple(read(memory, where[v]) for v in task.reads)
                assert not any("garbage" in found for found in inputs), "reads what nobody wrote"
                self.expected[replay, t] = inputs
                for v in task.writes:
                    memory.update(zip(where[v], self.results(t, v, inputs), strict=True))
            self.expected_end.append(tuple(read(memory, where[v]) for v in read_at_end(graph)))

    def overlaps_itself(self, task: int) -> bool:
        """A task may write where it reads only if what it writes overwrites what it reads."""
        graph = self.graph
        reads, writes = graph.tasks[task].reads, graph.tasks[task].writes
        for w in writes:
            for r in reads:
                in_place = graph.content(w).overwrites == graph.content(r).id
                if not in_place and set(self.where[w]) & set(self.where[r]):
                    return True
        written = [cell for w in writes for cell in self.where[w]]
        return len(set(written)) < len(written)

    def all_orders_agree(self) -> bool:
        if any(self.overlaps_itself(t) for t in range(len(self.graph.tasks))):
            return False
        memory: Memory = {}
        given(self.graph, memory, 0)
        self.seen: set[object] = set()
        return self.agree(memory, 0, (0,) * len(self.streams), frozenset(), frozenset())

    def agree(
        self,
        memory: Memory,
        replay: int,
        places: tuple[int, ...],
        running: frozenset[int],
        done: frozenset[int],
    ) -> bool:
        """Whether all goes well whatever happens next."""
        state = (replay, places, running, frozenset(memory.items()))
        if state in self.seen:
            return True
        self.seen.add(state)
        if len(done) == len(self.graph.tasks):
            return self.end_agrees(memory, replay, places)
        could_move = False
        for s, stream in enumerate(self.streams):
            if places[s] == len(stream):
                continue
            task, after = stream[places[s]], dict(memory)
            if task in running:
                could_move = True
                moved = (*places[:s], places[s] + 1, *places[s + 1 :])
                if not self.finish(after, replay, task) or not self.agree(
                    after, replay, moved, running - {task}, done | {task}
                ):
                    return False
            elif all(on in done for on in self.waits.get(task, ())):
                could_move = True
                if not self.start(after, replay, task) or not self.agree(
                    after, replay, places, running | {task}, done
                ):
                    return False
        return could_move

    def start(self, memory: Memory, replay: int, task: int) -> bool:
        reads, writes = self.graph.tasks[task].reads, self.graph.tasks[task].writes
        found = tuple(read(memory, self.where[v]) for v in reads)
        for v in writes:
            memory.update((cell, ("torn", task)) for cell in self.where[v])
        return found == self.expected[replay, task]

    def finish(self, memory: Memory, replay: int, task: int) -> bool:
        reads, writes = self.graph.tasks[task].reads, self.graph.tasks[task].writes
        written = {cell for v in writes for cell in self.where[v]}
        inputs = self.expected[replay, task]
        for v, found in zip(reads, inputs, strict=True):
            for cell, symbol in zip(self.where[v], found, strict=True):
                if cell not in written and memory.get(cell) != symbol:
                    return False
        if any(memory[cell] != ("torn", task) for cell in written):
            return False
        for v in writes:
            memory.update(zip(self.where[v], self.results(task, v, inputs), strict=True))
        return True

    def end_agrees(self, memory: Memory, replay: int, places: tuple[int, ...]) -> bool:
        found = tuple(read(memory, self.where[v]) for v in read_at_end(self.graph))
        if found != self.expected_end[replay]:
            return False
        if replay + 1 == REPLAYS:
            return True
        given(self.graph, memory, replay + 1)
        return self.agree(memory, replay + 1, (0,) * len(places), frozenset(), frozenset())
