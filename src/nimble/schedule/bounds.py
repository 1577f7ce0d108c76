"""What no arena can go below: for one schedule, and for every schedule of a graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nimble.schedule.flow import Edge, maximum_flow
from nimble.schedule.lifetimes import Home
from nimble.schedule.order import Order, matrix, reduction


def heaviest_antichain(sizes: Sequence[int], precedes: NDArray[np.bool_]) -> int:
    """The most bytes in values of which no two can share memory (weighted Dilworth).

    It equals all bytes less the most that can be handed on, from values to later ones: a maximum
    flow. Handing on may pass through values between, so edges of the transitive reduction suffice.
    """
    count = len(sizes)
    if count == 0:
        return 0
    rank: list[int] = np.argsort(precedes.sum(axis=0), kind="stable").tolist()
    weights = [sizes[home] for home in rank]
    total = sum(weights)
    columns = np.packbits(precedes[np.ix_(rank, rank)], axis=0, bitorder="little").T
    nearest = reduction([int.from_bytes(column.tobytes(), "little") for column in columns])
    source, sink = 2 * count, 2 * count + 1
    edges: list[Edge] = []
    for home, parents in enumerate(nearest):
        gives, takes = home, home + count
        edges += [(source, gives, weights[home]), (takes, sink, weights[home])]
        edges += [(takes, gives, total), *((parent, takes, total) for parent in parents)]
    return total - maximum_flow(sink + 1, edges, source, sink)


def every_order(homes: Sequence[Home], order: Order) -> int:
    """What no schedule of the graph can go below, whatever its order and its streams.

    While a task runs, a value is needed that the task touches, or that some task before it and some
    task after it touch. No schedule lets any two values needed by the same task share memory.
    """
    if not homes:
        return 0
    started = np.zeros((len(homes), len(order)), np.bool_)
    unfinished = np.zeros_like(started)
    from_here = matrix([m | 1 << t for t, m in enumerate(order.descendants)], len(order))
    up_to_here = matrix([m | 1 << t for t, m in enumerate(order.ancestors)], len(order))
    for h, home in enumerate(homes):
        touching = list(home.tasks)
        started[h] = from_here[touching].any(axis=0)
        unfinished[h] = home.kept | up_to_here[touching].any(axis=0)
    sizes = np.array([home.size for home in homes], np.int64)
    needed = max(int(sizes[row].sum()) for row in (started & unfinished).T)
    return max(needed, sum(home.size for home in homes if home.kept))
