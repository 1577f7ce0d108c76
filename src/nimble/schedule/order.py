"""Partial orders of tasks, kept as bit sets: bit `a` of a Python int stands for task `a`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nimble.errors import ScheduleError
from nimble.graph import in_order


def bits(mask: int) -> Iterator[int]:
    """The members of a bit set, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def matrix(masks: Sequence[int], width: int) -> NDArray[np.bool_]:
    """One row of `width` truth values for every bit set."""
    size = (width + 7) // 8
    packed = np.frombuffer(b"".join(m.to_bytes(size, "little") for m in masks), np.uint8)
    rows = np.unpackbits(packed.reshape(len(masks), size), axis=1, bitorder="little")
    return rows[:, :width].astype(np.bool_)


def reduction(before: Sequence[int]) -> list[list[int]]:
    """The transitive reduction of a closed order: for each, those before it with none between.

    `before` has bit sets of all that come before, in a numbering that keeps the order.
    """
    found = []
    for mask in before:
        nearest = []
        while mask:
            last = mask.bit_length() - 1
            nearest.append(last)
            mask &= ~(before[last] | 1 << last)
        found.append(nearest)
    return found


def topological(before: Sequence[Iterable[int]]) -> list[int]:
    """All tasks, each after those before it; the lowest number first where there is a choice."""
    sequence = in_order(before)
    if len(sequence) < len(before):
        stuck = min(set(range(len(before))) - set(sequence))
        raise ScheduleError(f"task {stuck} waits, through others, for itself")
    return sequence


@dataclass(frozen=True)
class Order:
    """What happens before what: the transitive closure and the transitive reduction of `before`."""

    sequence: tuple[int, ...]
    """All tasks in one order that is allowed."""
    ancestors: tuple[int, ...]
    """For every task, the bit set of all that happen before it."""
    parents: tuple[tuple[int, ...], ...]
    """For every task, those before it with nothing between: the minimum equivalent graph."""

    @staticmethod
    def of(before: Sequence[Iterable[int]], sequence: Sequence[int] | None = None) -> Order:
        sequence = topological(before) if sequence is None else sequence
        ancestors = [0] * len(before)
        parents: list[tuple[int, ...]] = [()] * len(before)
        for task in sequence:
            further, near = 0, 0
            for parent in before[task]:
                further |= ancestors[parent]
                near |= 1 << parent
            ancestors[task] = further | near
            parents[task] = tuple(bits(near & ~further))
        return Order(tuple(sequence), tuple(ancestors), tuple(parents))

    def __len__(self) -> int:
        return len(self.sequence)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in self.parents]
        for task, parents in enumerate(self.parents):
            for parent in parents:
                found[parent].append(task)
        return tuple(map(tuple, found))

    @cached_property
    def descendants(self) -> tuple[int, ...]:
        """For every task, the bit set of all that happen after it."""
        found = [0] * len(self)
        for task in reversed(self.sequence):
            for child in self.children[task]:
                found[task] |= found[child] | 1 << child
        return tuple(found)

    @property
    def edges(self) -> int:
        """How many edges the minimum equivalent graph has."""
        return sum(map(len, self.parents))
