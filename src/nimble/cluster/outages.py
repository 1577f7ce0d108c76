"""Machines that fail at random and are repaired."""

from __future__ import annotations

from random import Random

from nimble.cluster.result import Outage
from nimble.cluster.topology import Topology
from nimble.errors import InputError

MOST = 5_000_000


def random_outages(
    topology: Topology, *, until_s: float, between_s: float, repair_s: float, seed: int = 0
) -> tuple[Outage, ...]:
    """Each machine runs for `between_s` on average, then is repaired for `repair_s` on average.

    Both are exponential; machines fail independently of each other.

    >>> from nimble.cluster import parse
    >>> len(random_outages(parse("1x2x8"), until_s=1e6, between_s=1e5, repair_s=3600.0))
    14
    """
    if not (between_s > 0 and repair_s > 0):
        raise InputError(f"failures every {between_s} s, repaired in {repair_s} s: not above 0")
    expected = len(topology.machines) * until_s / (between_s + repair_s)
    if expected > MOST:
        raise InputError(
            f"about {expected:,.0f} failures, every {between_s:g} s of each machine; at most "
            f"{MOST:,}. Let them be rarer"
        )
    found = []
    for machine in range(len(topology.machines)):
        rng = Random(f"{seed} {machine}")
        now = rng.expovariate(1 / between_s)
        while now < until_s:
            back = now + rng.expovariate(1 / repair_s)
            found.append(Outage(machine, now, back))
            now = back + rng.expovariate(1 / between_s)
    return tuple(sorted(found, key=lambda outage: (outage.at_s, outage.machine)))
