"""Maximum matchings between tasks and their successors: how tasks join into chains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nimble.schedule.order import Order


@dataclass(frozen=True, slots=True)
class Matching:
    """`after[u]` is the task matched to follow `u`, or -1. No two tasks have the same one.

    `reached` and `crossed` are the tasks, on the left and on the right, that alternating paths from
    unmatched tasks on the left lead to. No path leads to an unmatched one on the right, so what is
    not `reached` together with what is `crossed` covers every edge (Kőnig).
    """

    after: tuple[int, ...]
    reached: int
    crossed: int

    @property
    def size(self) -> int:
        return sum(v >= 0 for v in self.after)


def maximum(successors: Sequence[int], start: Sequence[int] | None = None) -> Matching:
    """A largest matching of every task `u` with one of the bit set `successors[u]`.

    It grows out of `start`, and every task matched there, on either side, stays matched.
    """
    after = [-1] * len(successors) if start is None else list(start)
    owner = [-1] * len(successors)
    for u, v in enumerate(after):
        if v >= 0:
            owner[v] = u
    everything = (1 << len(successors)) - 1
    free = everything & ~sum(1 << v for v in after if v >= 0)
    grown = True
    while grown:
        grown, reached, unseen = False, 0, everything
        for root in [u for u, v in enumerate(after) if v < 0]:
            path = [root]
            reached |= 1 << root
            while path:
                u = path[-1]
                found = successors[u] & free & unseen or successors[u] & unseen
                if not found:
                    path.pop()
                    continue
                bit = found & -found
                unseen ^= bit
                v = bit.bit_length() - 1
                if not bit & free:
                    path.append(owner[v])
                    reached |= 1 << owner[v]
                    continue
                free ^= bit
                for u in reversed(path):
                    after[u], owner[v], v = v, u, after[u]
                grown = True
                break
    return Matching(tuple(after), reached, everything & ~unseen)


def fewest_waits_then_streams(order: Order) -> tuple[Matching, Matching]:
    """Of the minimum equivalent graph, a largest matching; and one of the closure that uses just as
    many edges of the minimum equivalent graph and, among all such, is largest.

    By linear programming duality a matching uses the most edges of the minimum equivalent graph if
    and only if it leaves no task of a smallest cover unmatched and uses, of those edges, only ones
    covered once and, of the other edges, only ones not covered at all. The first matching does, and
    one that grows out of it through such edges still does.
    """
    near = [sum(1 << child for child in children) for children in order.children]
    chains = maximum(near)
    allowed = [
        near[u] | order.descendants[u] & ~chains.crossed
        if chains.reached >> u & 1
        else near[u] & ~chains.crossed
        for u in range(len(order))
    ]
    return chains, maximum(allowed, chains.after)


def join(after: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The chains that a matching joins tasks into, by their first task."""
    later = {v for v in after if v >= 0}
    chains = []
    for first in range(len(after)):
        if first in later:
            continue
        chain = [first]
        while after[chain[-1]] >= 0:
            chain.append(after[chain[-1]])
        chains.append(tuple(chain))
    return tuple(chains)


def width(order: Order, start: Sequence[int] | None = None) -> int:
    """The most tasks of which no two are ordered (Dilworth)."""
    return len(order) - maximum(order.descendants, start).size
