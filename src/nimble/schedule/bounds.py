"""What no arena can go below: for one schedule, and for every schedule of a graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nimble.graph import ALIGNMENT
from nimble.schedule.lifetimes import Home
from nimble.schedule.order import Order, matrix, reduction

_MOST_FLOW = 2**31 - 1


def heaviest_antichain(sizes: Sequence[int], precedes: NDArray[np.bool_]) -> int:
    """The most bytes in values of which no two can share memory (weighted Dilworth).

    It equals all bytes less the most that can be handed on, from values to later ones: a maximum
    flow. Handing on may pass through values between, so edges of the transitive reduction suffice.
    """
    # Half a second and 15 MB that an engine from a file is spared: its bound is known.
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import maximum_flow

    count = len(sizes)
    if count == 0:
        return 0
    unit = ALIGNMENT
    while sum(size // unit for size in sizes) > _MOST_FLOW:
        unit *= 2  # scipy's flows are 32 bits; rounding down keeps this a lower bound
    rank = np.argsort(precedes.sum(axis=0), kind="stable")
    weights = np.array(sizes, np.int64)[rank] // unit
    total = int(weights.sum())
    columns = np.packbits(precedes[np.ix_(rank, rank)], axis=0, bitorder="little").T
    nearest = reduction([int.from_bytes(column.tobytes(), "little") for column in columns])
    earlier = np.array([p for parents in nearest for p in parents], np.int64)
    later = np.repeat(np.arange(count), [len(parents) for parents in nearest])
    every = np.arange(count)
    source, sink = 2 * count, 2 * count + 1
    gives, takes = every, every + count
    tails = np.concatenate([np.full(count, source), earlier, takes, takes])
    heads = np.concatenate([gives, count + later, gives, np.full(count, sink)])
    unbounded = np.full(len(earlier) + count, total)
    capacity = np.concatenate([weights, unbounded, weights]).astype(np.int32)
    network = csr_array(coo_array((capacity, (tails, heads)), shape=(sink + 1, sink + 1)))
    handed_on = int(maximum_flow(network, source, sink).flow_value)
    return (total - handed_on) * unit


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
