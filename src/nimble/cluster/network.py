"""How long an iteration takes on a placement, and what it sends over which link.

An all-reduce of B bytes sends `weight x B` each way over a link. A *ring* over n GPUs visits every
machine and rack once: weight 2(n-1)/n on each link it crosses. A *tree* (two, each with half of the
bytes) has weight 2. The *hierarchical* one reduces inside each domain before it leaves it: of m
members of a domain, each sends 2(m-1)/m to the others, and its 1/m of what the domain sends on.
Parts of a collective on different links run at the same time, so the slowest link counts, and on
top of it the hops' latency, once a bucket.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, log2

from nimble.cluster.profile import Profile
from nimble.cluster.topology import Placement, Topology


class Collective(StrEnum):
    RING = "ring"
    TREE = "tree"
    HIERARCHICAL = "hierarchical"


@dataclass(frozen=True, slots=True)
class Cost:
    """A profile on a placement, alone in the cluster."""

    tier: int
    iteration_s: float
    compute_s: float  # of iteration_s
    # (link, bytes each way per byte all-reduced), for every link crossed; empty inside a machine.
    traffic: tuple[tuple[int, float], ...]

    @property
    def exposed_s(self) -> float:
        """Communication that computing does not hide."""
        return self.iteration_s - self.compute_s


def cost(
    topology: Topology,
    profile: Profile,
    placement: Placement,
    collective: Collective = Collective.RING,
) -> Cost:
    """What one iteration of `profile` takes on `placement` when nobody shares its links.

    compute / speed of its slowest GPU kind + max(0, communication - overlap x that).
    """
    kinds = {topology.machines[machine].kind for machine, _ in placement}
    compute_s = profile.compute_s / min(speed(profile, kind) for kind in kinds)
    gpus = sum(count for _, count in placement)
    around = crossed(topology, placement)
    bytes_ = profile.bytes
    if gpus == 1 or not bytes_:
        return Cost(len(around), compute_s, compute_s, ())
    inside = max(count for _, count in placement)
    weights = _weights(topology, collective, gpus, around)
    slowest = _within(collective, gpus, inside) / topology.tiers[0].bandwidth
    for link, weight in weights.items():
        slowest = max(slowest, weight / topology.capacity[link])
    latency_s = hops(collective, gpus, inside, around) * topology.tiers[len(around)].latency_s
    communication_s = slowest * bytes_ + latency_s * len(profile.buckets)
    exposed_s = max(0.0, communication_s - profile.overlap * compute_s)
    return Cost(len(around), compute_s + exposed_s, compute_s, tuple(weights.items()))


def crossed(topology: Topology, placement: Placement) -> list[list[int]]:
    """The links that a placement's GPUs reach each other over, tier by tier, ascending."""
    around = [machine for machine, _ in placement]
    links = []
    while len(around) > 1:
        links.append(around)
        around = sorted({topology.parent[domain] for domain in around})
    return links


def speed(profile: Profile, kind: str) -> float:
    """How fast a GPU of `kind` computes, relative to the profile's reference GPU."""
    return next((relative for name, relative in profile.speeds if name == kind), 1.0)


def _within(collective: Collective, gpus: int, inside: int) -> float:
    """Bytes each way per byte all-reduced, of a GPU to others of its machine."""
    if inside == 1:
        return 0.0
    if collective is Collective.HIERARCHICAL:
        return 2 * (inside - 1) / inside
    return 2 * (gpus - 1) / gpus if collective is Collective.RING else 2.0


def _weights(
    topology: Topology, collective: Collective, gpus: int, around: Sequence[Sequence[int]]
) -> Mapping[int, float]:
    """Bytes each way per byte all-reduced, of each link."""
    if collective is not Collective.HIERARCHICAL:
        weight = 2 * (gpus - 1) / gpus if collective is Collective.RING else 2.0
        return {link: weight for links in around for link in links}
    weights: dict[int, float] = {}
    for links in reversed(around):
        members = Counter(topology.parent[link] for link in links)
        for link in links:
            above = topology.parent[link]
            m = members[above]
            weights[link] = 2 * (m - 1) / m + weights.get(above, 0.0) / m
    return dict(sorted(weights.items()))


def hops(collective: Collective, gpus: int, inside: int, around: Sequence[Sequence[int]]) -> int:
    """Messages one after the other in one all-reduce."""
    if collective is Collective.RING:
        return 2 * (gpus - 1)
    if collective is Collective.TREE:
        return 2 * ceil(log2(gpus))
    return sum(2 * ceil(log2(n)) for n in (inside, *map(len, around)) if n > 1)
