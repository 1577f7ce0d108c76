"""Which values need memory in the arena, how much, and which of them can never share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nimble.graph import DType, Graph, Role, align
from nimble.schedule.order import Order, matrix


@dataclass(frozen=True, slots=True)
class Home:
    """A root value of the arena, with all views and versions that live in its memory."""

    id: int
    size: int
    """Bytes, a multiple of ALIGNMENT."""
    tasks: tuple[int, ...]
    """All tasks that read or write any value living here."""
    kept: bool
    """Read at the end of the replay, so nothing may follow it."""


def homes(graph: Graph) -> list[Home]:
    """Every root of the arena that takes bytes and that some task touches or the caller reads."""
    touched: dict[int, list[int]] = {}
    for t, task in enumerate(graph.tasks):
        for home in dict.fromkeys(graph.homes[v] for v in (*task.reads, *task.writes)):
            touched.setdefault(home, []).append(t)
    kept = {graph.homes[v] for v in graph.outputs}
    return [
        Home(root.id, align(root.span), tuple(touched.get(root.id, ())), root.id in kept)
        for root in graph.roots(Role.INTERMEDIATE)
        if root.dtype is not DType.TOKEN
        and root.span > 0
        and (root.id in touched or root.id in kept)
    ]


def precedes(homes: Sequence[Home], order: Order) -> NDArray[np.bool_]:
    """Row a, column b: whether every task that touches `a` happens before every one that touches
    `b`, so that `b` may take the bytes of `a`."""
    everything = (1 << len(order)) - 1
    later = []
    for home in homes:
        mask = 0 if home.kept else everything
        for task in home.tasks:
            mask &= order.descendants[task]
        later.append(mask)
    after = np.ascontiguousarray(matrix(later, len(order)).T)
    columns = [after[list(home.tasks)].all(axis=0) for home in homes]
    return np.stack(columns, axis=1) if columns else np.zeros((0, 0), np.bool_)


def peak(homes: Sequence[Home], sequence: Sequence[int]) -> int:
    """The most bytes alive at once when the tasks run one by one.

    No two values alive at once in an allowed sequence can precede one another, so this is a lower
    bound on the arena of every schedule that allows the sequence; for one stream it is the bound.
    """
    place = {task: p for p, task in enumerate(sequence)}
    change = [0] * (len(sequence) + 1)
    for home in homes:
        places = [place[task] for task in home.tasks]
        change[min(places, default=0)] += home.size
        if not home.kept:
            change[max(places) + 1] -= home.size
    alive = most = 0
    for step in change:
        alive += step
        most = max(most, alive)
    return most
