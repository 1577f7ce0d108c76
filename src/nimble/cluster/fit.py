"""Where a gang fits: the rule, on plain lists. The fleet answers the same from its index."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from nimble.cluster.topology import Placement, Topology


class Choice(IntEnum):
    """Which of the domains with enough free GPUs is taken; the lowest number where equal."""

    BEST = 0  # the fewest free
    FIRST = 1  # the lowest number
    MOST = 2  # the most free


def fit(
    topology: Topology, free: Sequence[int], gpus: int, tier: int, choice: Choice = Choice.BEST
) -> Placement | None:
    """GPUs inside one domain of `tier`, given each machine's free ones; None if no domain has them.

    Inside the domain the smallest member with enough free GPUs takes all; where none has enough the
    emptiest gives all it has and the rest goes on so: few machines, few racks. The result may be
    tighter than `tier`.
    """
    count = free_per_domain(topology, free)
    enough = [d for d in topology.domains[tier] if count[d] >= gpus]
    if not enough:
        return None
    if choice is Choice.BEST:
        domain = min(enough, key=lambda d: (count[d], d))
    elif choice is Choice.MOST:
        domain = min(enough, key=lambda d: (-count[d], d))
    else:
        domain = enough[0]
    members: list[list[int]] = [[] for _ in topology.parent]
    for d, above in enumerate(topology.parent[:-1]):
        members[above].append(d)
    taken: list[tuple[int, int]] = []

    def place(domain: int, gpus: int) -> None:
        if domain < len(topology.machines):
            taken.append((domain, gpus))
            return
        left = sorted(members[domain], key=lambda d: (-count[d], d))
        while True:
            fits = [d for d in left if count[d] >= gpus]
            if fits:
                place(min(fits, key=lambda d: (count[d], d)), gpus)
                return
            emptiest = left.pop(0)
            place(emptiest, count[emptiest])
            gpus -= count[emptiest]

    place(domain, gpus)
    return tuple(sorted(taken))


def free_per_domain(topology: Topology, free: Sequence[int]) -> list[int]:
    count = [*free, *([0] * (len(topology.parent) - len(free)))]
    for domain, above in enumerate(topology.parent[:-1]):
        count[above] += count[domain]
    return count


def tightest(topology: Topology, gpus: int) -> Placement | None:
    """The tightest feasible placement of `gpus` in the empty cluster; None if it is too small."""
    tier = topology.tightest(gpus)
    if tier is None:
        return None
    return fit(topology, [machine.gpus for machine in topology.machines], gpus, tier)
