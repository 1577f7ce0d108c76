"""GPUs in machines in racks in a network: a tree whose edges are full-duplex links.

A *domain* is a node of that tree: machines first (domain i is machine i), then racks, then whatever
is above, the whole network last. Every domain but the last has one *link*, its edge to the domain
above it; link and domain share their number. *Tier* k counts from the machine (0) up; a placement's
tier is that of the smallest domain around it. All machines lie at the same depth, and the machines
of a domain are numbered without a gap.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, isfinite, prod

from nimble.errors import InputError

# GPUs taken from machines, ((machine, gpus), ...), machines ascending and distinct.
Placement = tuple[tuple[int, int], ...]

TIER_NAMES = {
    1: ("machine",),
    2: ("machine", "network"),
    3: ("machine", "rack", "network"),
    4: ("machine", "rack", "row", "network"),
}
GPU_BANDWIDTH = 150e9  # bytes/s each way between GPUs of a machine
MACHINE_BANDWIDTH = 12.5e9  # bytes/s each way of a machine's uplink: 100 Gb/s
LATENCIES_S = (2e-6, 5e-6, 10e-6)
# A million machines take seconds and half a gigabyte; a slip of the keyboard asks for far more.
MOST_MACHINES = 1_000_000
MOST_GPUS = 100_000_000


@dataclass(frozen=True, slots=True)
class Tier:
    """One level: what a hop between two members of a domain of this tier costs."""

    name: str
    # Of one hop. The highest tier of a placement counts.
    latency_s: float
    # Bytes/s each way: tier 0, of a GPU inside a machine; above, the usual link of a member
    # domain to a domain of this tier (a single link may differ: Topology.capacity has the word).
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Machine:
    name: str
    gpus: int
    # "" is the reference GPU of the profiles.
    kind: str = ""


@dataclass(frozen=True)
class Topology:
    """The cluster. Made by `grid`, `parse` or the readers in topology_files.py."""

    tiers: tuple[Tier, ...]
    machines: tuple[Machine, ...]
    # Of each domain, the domain above it; -1 for the last.
    parent: tuple[int, ...]
    # Of each domain but the last, bytes/s each way of its link.
    capacity: tuple[float, ...]
    # Of each domain; machines' come first.
    names: tuple[str, ...]
    # What was asked for, to be printed: "16x16x8".
    text: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        check(self)

    @cached_property
    def gpus(self) -> int:
        return sum(machine.gpus for machine in self.machines)

    @cached_property
    def level(self) -> tuple[int, ...]:
        """The tier of each domain."""
        levels = [0] * len(self.parent)
        for domain, above in enumerate(self.parent):
            if above >= 0:
                levels[above] = levels[domain] + 1
        return tuple(levels)

    @cached_property
    def domains(self) -> tuple[tuple[int, ...], ...]:
        """The domains of each tier; `domains[0]` are the machines."""
        found: list[list[int]] = [[] for _ in self.tiers]
        for domain, level in enumerate(self.level):
            found[level].append(domain)
        return tuple(map(tuple, found))

    @cached_property
    def span(self) -> tuple[tuple[int, int], ...]:
        """The machines of each domain: first, and one past the last."""
        count = len(self.machines)
        spans = [(m, m + 1) if m < count else (count, 0) for m in range(len(self.parent))]
        for domain, above in enumerate(self.parent):
            if above >= 0:
                (low, high), (first, last) = spans[above], spans[domain]
                spans[above] = (min(low, first), max(high, last))
        return tuple(spans)

    @cached_property
    def size(self) -> tuple[int, ...]:
        """The GPUs of each domain."""
        sizes = [machine.gpus for machine in self.machines]
        sizes += [0] * (len(self.parent) - len(sizes))
        for domain, above in enumerate(self.parent):
            if above >= 0:
                sizes[above] += sizes[domain]
        return tuple(sizes)

    @cached_property
    def largest(self) -> tuple[int, ...]:
        """The most GPUs that one domain of each tier has."""
        return tuple(max(self.size[domain] for domain in tier) for tier in self.domains)

    def above(self, machine: int, tier: int) -> int:
        """The domain of `tier` that `machine` lies in."""
        domain = machine
        for _ in range(tier):
            domain = self.parent[domain]
        return domain

    def tier(self, placement: Placement) -> int:
        """The tier of the smallest domain around a placement."""
        around = {machine for machine, _ in placement}
        tier = 0
        while len(around) > 1:
            around = {self.parent[domain] for domain in around}
            tier += 1
        return tier

    def tightest(self, gpus: int) -> int | None:
        """The lowest tier with a domain of at least `gpus` GPUs; None if the cluster has fewer."""
        tier = bisect_left(self.largest, gpus)
        return tier if tier < len(self.largest) else None


def grid(
    shape: Sequence[int],
    *,
    oversubscription: float = 1.0,
    bandwidth: Sequence[float] = (),
    latency_s: Sequence[float] = (),
    kinds: Sequence[str] = (),
) -> Topology:
    """A regular tree: `shape` is (racks, machines per rack, GPUs per machine), or any depth.

    A machine's link has `bandwidth[1]`; the link of every larger domain has the sum of the links
    below it, divided by `oversubscription` (4.0: four times as much could come from below as may
    leave), unless `bandwidth` gives its tier too. `kinds` are the machines' GPU kinds, repeated.

    >>> grid((2, 4, 8), oversubscription=4).capacity[-2:]
    (12500000000.0, 12500000000.0)
    """
    text = "x".join(map(str, shape))
    if not shape or any(int(n) != n or n < 1 for n in shape):
        raise InputError(f"cluster {text!r}: expected whole numbers above 0, such as 16x16x8")
    check_size(f"cluster {text!r}", prod(shape[:-1]), prod(shape))
    if not 0 < oversubscription < inf:
        raise InputError(f"oversubscription is {oversubscription}; expected a ratio above 0")
    depth = len(shape)
    if depth > 8:
        raise InputError(f"cluster {text!r}: {depth} tiers; expected 8 or fewer")
    names = TIER_NAMES.get(depth) or (
        "machine", "rack", *(f"tier{t}" for t in range(2, depth - 1)), "network"
    )  # fmt: skip
    counts = [prod(shape[: depth - 1 - tier]) for tier in range(depth)]  # domains of each tier
    starts = [sum(counts[:tier]) for tier in range(depth)]
    usual = [GPU_BANDWIDTH, MACHINE_BANDWIDTH]
    usual[: len(bandwidth)] = bandwidth
    while len(usual) < depth:
        usual.append(usual[-1] * shape[depth - len(usual)] / oversubscription)
    latencies = [*latency_s, *LATENCIES_S[len(latency_s) :]]
    latencies += [latencies[-1]] * (depth - len(latencies))
    parent: list[int] = []
    labels: list[str] = []
    for tier in range(depth - 1):
        fan = shape[depth - 2 - tier]
        parent += [starts[tier + 1] + i // fan for i in range(counts[tier])]
        labels += [f"{names[tier]}{i}" for i in range(counts[tier])]
    machines = tuple(
        Machine(f"machine{i}", shape[-1], kinds[i % len(kinds)] if kinds else "")
        for i in range(counts[0])
    )
    return Topology(
        tiers=tuple(map(Tier, names, latencies, usual)),
        machines=machines,
        parent=(*parent, -1),
        capacity=tuple(usual[tier + 1] for tier in range(depth - 1) for _ in range(counts[tier])),
        names=(*labels, names[-1]),
        text=text,
    )


def check_size(what: str, machines: int, gpus: int) -> None:
    """InputError if a cluster is larger than can be simulated."""
    if machines > MOST_MACHINES or gpus > MOST_GPUS:
        raise InputError(
            f"{what}: {machines:,} machines with {gpus:,} GPUs; at most {MOST_MACHINES:,} machines "
            f"and {MOST_GPUS:,} GPUs"
        )


def parse(text: str, *, oversubscription: float = 1.0, kinds: Sequence[str] = ()) -> Topology:
    """A cluster from "16x16x8": racks x machines x GPUs; "4x8" has no racks, "8" one machine."""
    try:
        shape = [int(part) for part in text.lower().split("x")]
    except ValueError:
        raise InputError(
            f"cluster {text!r}: expected racks x machines x GPUs, such as 16x16x8"
        ) from None
    return grid(shape, oversubscription=oversubscription, kinds=kinds)


def check(topology: Topology) -> None:
    """Raises InputError unless the tree is one, even and numbered as said above."""
    parent, machines = topology.parent, topology.machines
    if not machines or any(machine.gpus < 1 for machine in machines):
        raise InputError("a cluster needs machines, and every machine at least one GPU")
    for domain, above in enumerate(parent[:-1]):
        if not domain < above < len(parent):
            raise InputError(f"{topology.names[domain]} has no domain above it")
    if parent[-1] != -1 or len(topology.capacity) != len(parent) - 1:
        raise InputError("every domain but the last needs a link to the domain above it")
    levels = topology.level
    for domain, above in enumerate(parent[:-1]):
        if levels[above] != levels[domain] + 1:
            raise InputError(
                f"{topology.names[domain]}: all machines must lie at the same depth; "
                "give the shallow ones a rack of their own"
            )
    if any(levels[len(machines) :][i] == 0 for i in range(len(parent) - len(machines))):
        raise InputError("a rack without machines; leave it out")
    if max(levels) + 1 != len(topology.tiers):
        raise InputError(f"{max(levels) + 1} levels but {len(topology.tiers)} tiers")
    for (low, high), name, size in zip(
        topology.span, topology.names, _machines_in(topology), strict=True
    ):
        if high - low != size:
            raise InputError(f"the machines of {name} are not numbered one after the other")
    for tier in topology.tiers:
        if not (tier.bandwidth > 0 and 0 <= tier.latency_s < inf):
            raise InputError(
                f"tier {tier.name} has a bandwidth of {tier.bandwidth} bytes/s and a latency of "
                f"{tier.latency_s} s"
            )
    for link, capacity in enumerate(topology.capacity):
        if not (capacity > 0 and isfinite(capacity)):
            raise InputError(f"the link of {topology.names[link]} has a bandwidth of {capacity}")


def _machines_in(topology: Topology) -> list[int]:
    counts = [1] * len(topology.machines)
    counts += [0] * (len(topology.parent) - len(counts))
    for domain, above in enumerate(topology.parent[:-1]):
        counts[above] += counts[domain]
    return counts
