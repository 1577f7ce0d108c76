"""Free GPUs, shared links and progress of the running jobs."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from nimble.cluster.fit import Choice, fit, free_per_domain
from nimble.cluster.topology import Placement, Topology

Traffic = Sequence[tuple[int, float]]


class Fleet:
    def __init__(self, topology: Topology, contention: bool = True) -> None:
        self.topology = topology
        self.contention = contention
        self.free_of = [machine.gpus for machine in topology.machines]
        self.closed = [False] * len(topology.machines)
        # job: [t0, done, total, speed, share, demand, traffic]
        self.jobs: dict[int, list[Any]] = {}
        self.shared_link_s = 0.0
        self._shared_at = 0.0
        self._dirty = False

    @property
    def free(self) -> int:
        return sum(self._open())

    def _open(self) -> list[int]:
        return [0 if shut else n for n, shut in zip(self.free_of, self.closed, strict=True)]

    def free_in(self, domain: int) -> int:
        return free_per_domain(self.topology, self._open())[domain]

    def fit(self, gpus: int, tier: int, choice: int = 0) -> Placement | None:
        return fit(self.topology, self._open(), gpus, tier, Choice(choice))

    def take(self, placement: Placement) -> None:
        for machine, gpus in placement:
            if gpus < 1 or gpus > self._open()[machine]:
                raise ValueError(machine)
        for machine, gpus in placement:
            self.free_of[machine] -= gpus

    def give(self, placement: Placement) -> None:
        for machine, gpus in placement:
            self.free_of[machine] += gpus

    def begin(
        self,
        job: int,
        at: float,
        done: float,
        total: float,
        speed: float,
        demand: float,
        traffic: Traffic,
    ) -> None:
        self.jobs[job] = [at, done, total, speed, 1.0, demand, traffic if self.contention else ()]
        self._dirty = self._dirty or bool(traffic)

    def end(self, job: int, now: float) -> float:
        done = self.done(job, now)
        self._dirty = self._dirty or bool(self.jobs[job][6])
        del self.jobs[job]
        return done

    def done(self, job: int, now: float) -> float:
        at, done, total, speed, share, _, _ = self.jobs[job]
        return float(min(total, done + max(0.0, now - at) * speed * share))

    def share(self, job: int) -> float:
        return float(self.jobs[job][4])

    def probe(self, demand: float, traffic: Traffic) -> float:
        """The share of its demand that a flow would get if it were added."""
        if not self.contention:
            return 1.0
        flows = {j: (e[5], e[6]) for j, e in self.jobs.items() if e[6]}
        return max_min({**flows, -1: (demand, traffic)}, self.topology.capacity)[-1] / demand

    def flows_on(self, link: int) -> int:
        return sum(any(k == link for k, _ in entry[6]) for entry in self.jobs.values())

    def settle(self, now: float) -> list[tuple[int, float]]:
        changed = []
        if self._dirty:
            self._dirty = False
            rates = max_min(
                {j: (e[5], e[6]) for j, e in self.jobs.items() if e[6]}, self.topology.capacity
            )
            for job, rate in rates.items():
                entry = self.jobs[job]
                share = rate / entry[5]
                if share != entry[4]:
                    entry[1] = self.done(job, now)
                    entry[0] = max(entry[0], now)
                    entry[4] = share
                    changed.append((job, share))
        return changed

    def next(self) -> tuple[float, int]:
        best = (inf, -1)
        for job, (at, done, total, speed, share, _, _) in self.jobs.items():
            best = min(best, (at + (total - done) / (speed * share), job))
        return best


def max_min(flows: dict[int, tuple[float, Traffic]], capacity: Sequence[float]) -> dict[int, float]:
    """Rates that are max-min fair per job: sum of weight x rate <= capacity on each link, and every
    job is at its demand or has the largest rate on a saturated link. By progressive filling."""
    rates: dict[int, float] = {}
    left = dict(flows)
    room = list(capacity)
    while left:
        weight: dict[int, float] = {}
        for _, traffic in left.values():
            for link, w in traffic:
                weight[link] = weight.get(link, 0.0) + w
        level = min((room[link] / w for link, w in weight.items()), default=inf)
        least = min(demand for demand, _ in left.values())
        if least <= level:
            fixed = [job for job, (demand, _) in left.items() if demand <= least]
            level = least
        else:
            full = {link for link, w in weight.items() if room[link] / w <= level * (1 + 1e-12)}
            fixed = [
                job for job, (_, traffic) in left.items() if any(k in full for k, _ in traffic)
            ]
        for job in fixed:
            rates[job] = level
            for link, w in left.pop(job)[1]:
                room[link] = max(0.0, room[link] - w * level)
    return rates
