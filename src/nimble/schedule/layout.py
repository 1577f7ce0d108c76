"""Where the bytes of every value are, according to a schedule. Trusts nothing it is given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nimble.errors import GraphError, ProofError
from nimble.graph import DType, Graph, Role, verify

ARENA = -1
_HUGE = 1 << 62
_MOST_DIMS = 64


def check_graph(graph: Graph) -> None:
    """Raise ProofError unless the graph obeys the IR and its numbers can be computed with."""
    inner: Graph | None = graph
    while inner is not None:
        _check_numbers(inner)
        inner = inner.prologue
    try:
        verify(graph)
    except GraphError as error:
        raise ProofError(f"the graph breaks the rules of the IR: {error}") from error
    over: dict[int, int] = {}
    for value in graph.values:
        if value.offset + value.span >= _HUGE:
            raise ProofError(f"value %{value.id} {value.name!r} has {value.span} bytes")
        if value.base is None and value.offset:
            raise ProofError(f"value %{value.id} {value.name!r} is no view, but has an offset")
        if value.overwrites is not None:
            other = over.setdefault(value.overwrites, value.id)
            if other != value.id:
                raise ProofError(
                    f"values %{other} and %{value.id} both overwrite %{value.overwrites}; "
                    "the later one has to overwrite the earlier one"
                )


def _check_numbers(graph: Graph) -> None:
    for value in graph.values:
        numbers = (value.id, *value.shape, *value.strides, value.offset)
        if len(value.shape) > _MOST_DIMS or not all(
            type(n) is int and 0 <= n < _HUGE for n in numbers
        ):
            raise ProofError(f"value {value.name!r}: sizes, strides or offset out of range")


class Layout:
    """Every value's contents, home, version, and bytes `start` to `stop` of a space: the arena, or
    the memory of a root that is not in the arena."""

    def __init__(self, graph: Graph, offsets: Sequence[int | None], arena_bytes: int) -> None:
        self.graph = graph
        values = graph.values
        self.content = [v.id if v.base is None else v.base for v in values]
        self.home = [v.id for v in values]
        self.version = [0] * len(values)
        for v in values:
            if v.overwrites is not None:
                self.home[v.id] = self.home[v.overwrites]
                self.version[v.id] = self.version[v.overwrites] + 1
        self.home = [self.home[c] for c in self.content]
        self.version = [self.version[c] for c in self.content]
        self.space = [ARENA if graph[h].role is Role.INTERMEDIATE else h for h in self.home]
        self.start = self._starts(offsets, arena_bytes)
        self.stop = [start + v.span for start, v in zip(self.start, values, strict=True)]

    def name(self, id: int | np.int64) -> str:
        return f"value %{id} {self.graph.values[id].name!r}"

    def _starts(self, offsets: Sequence[int | None], arena_bytes: int) -> list[int]:
        graph = self.graph
        if len(offsets) != len(graph.values):
            raise ProofError(f"{len(offsets)} offsets were given for {len(graph.values)} values")
        if type(arena_bytes) is not int or not 0 <= arena_bytes < _HUGE:
            raise ProofError(f"an arena cannot have {arena_bytes!r} bytes")
        live = {self.home[v] for task in graph.tasks for v in (*task.reads, *task.writes)}
        live |= {self.home[v] for v in graph.outputs}
        starts = [value.offset for value in graph.values]
        for value, offset in zip(graph.values, offsets, strict=True):
            inside = self.space[value.id] == ARENA and value.dtype is not DType.TOKEN
            if offset is not None and inside:
                self._check_offset(value.id, offset, offsets[self.home[value.id]], arena_bytes)
                starts[value.id] = offset
            elif offset is not None:
                raise ProofError(
                    f"{self.name(value.id)} has offset {offset!r}, but is not in the arena"
                )
            elif inside and self.home[value.id] in live:
                raise ProofError(f"{self.name(value.id)} is used, and has no place in the arena")
        return starts

    def _check_offset(self, id: int, offset: int, home: int | None, arena_bytes: int) -> None:
        value = self.graph[id]
        if type(offset) is not int or not 0 <= offset <= arena_bytes - value.span:
            raise ProofError(
                f"{self.name(id)} at offset {offset!r} has {value.span} bytes, which are not "
                f"inside the arena of {arena_bytes}"
            )
        if offset % value.dtype.itemsize:
            raise ProofError(
                f"{self.name(id)} at offset {offset} is not aligned to its elements of "
                f"{value.dtype.itemsize} bytes"
            )
        if home is None or offset != home + value.offset:
            raise ProofError(
                f"{self.name(id)} is at offset {offset}, but belongs {value.offset} bytes into "
                f"{self.name(self.home[id])}, which is at {home!r}"
            )
