"""The native Fleet again, plainly: scans, no index, rates from scratch. The oracle of the tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, inf

from nimble.cluster.fit import Choice, fit, free_per_domain
from nimble.cluster.topology import Placement, Topology

Traffic = Sequence[tuple[int, float]]


@dataclass
class Run:
    at: float
    done: float
    total: float
    speed: float
    demand: float
    traffic: Traffic
    share: float = 1.0


class PlainFleet:
    def __init__(
        self, topology: Topology, contention: bool = True, checkpoint_every_s: float = inf
    ) -> None:
        self.topology = topology
        self.contention = contention
        self.every = checkpoint_every_s
        self.free_of = [machine.gpus for machine in topology.machines]
        self.open = [True] * len(topology.machines)
        self.runs: dict[int, Run] = {}
        self.saved: dict[int, tuple[float, float]] = {}  # begun, work in the last checkpoint
        self._shared = 0.0
        self._slowed = 0.0
        self._counted = 0.0

    def _offered(self) -> list[int]:
        return [n if up else 0 for n, up in zip(self.free_of, self.open, strict=True)]

    @property
    def free(self) -> int:
        return sum(self._offered())

    def free_in(self, domain: int) -> int:
        return free_per_domain(self.topology, self._offered())[domain]

    def left(self, machine: int) -> int:
        return self.free_of[machine]

    def fit(self, gpus: int, tier: int, choice: int = 0) -> Placement | None:
        return fit(self.topology, self._offered(), gpus, tier, Choice(choice))

    def take(self, placement: Placement, of_closed: bool = False) -> None:
        for machine, gpus in placement:
            if gpus > (self.free_of if of_closed else self._offered())[machine]:
                raise ValueError(machine)
        for machine, gpus in placement:
            self.free_of[machine] -= gpus

    def give(self, placement: Placement) -> None:
        for machine, gpus in placement:
            self.free_of[machine] += gpus

    def set_open(self, machine: int, up: bool) -> None:
        self.open[machine] = up

    def begin(
        self,
        job: int,
        now: float,
        at: float,
        done: float,
        total: float,
        speed: float,
        demand: float,
        traffic: Traffic,
    ) -> None:
        self._count(now)
        self.runs[job] = Run(at, done, total, speed, demand, traffic if self.contention else ())
        self.saved[job] = (at, done)

    def end(self, job: int, now: float) -> float:
        self._count(now)
        done = self.done(job, now)
        del self.runs[job]
        return done

    def fail(self, job: int, now: float) -> float:
        self._advance(job, now)
        self.end(job, now)
        return self.saved[job][1]

    def done(self, job: int, now: float) -> float:
        run = self.runs[job]
        return min(run.total, run.done + max(0.0, now - run.at) * run.speed * run.share)

    def share(self, job: int) -> float:
        return self.runs[job].share

    def _advance(self, job: int, now: float) -> None:
        run = self.runs[job]
        begun, saved = self.saved[job]
        if self.every < inf and now > run.at:
            last = begun + floor((now - begun) / self.every) * self.every
            if last > run.at:
                saved = self.done(job, last)
        self.saved[job] = (begun, saved)
        run.done = self.done(job, now)
        run.at = max(run.at, now)

    def rates(self) -> dict[int, float]:
        flows = {job: (run.demand, run.traffic) for job, run in self.runs.items() if run.traffic}
        return max_min(flows, self.topology.capacity)

    def settle(self, now: float) -> list[tuple[int, float]]:
        self._count(now)
        changed = []
        for job, rate in self.rates().items():
            run = self.runs[job]
            share = min(1.0, rate / run.demand)
            if share != run.share:
                self._advance(job, now)
                run.share = share
                changed.append((job, share))
        return changed

    def next(self) -> tuple[float, int]:
        return min(
            (
                (run.at + max(0.0, run.total - run.done) / (run.speed * run.share), job)
                for job, run in self.runs.items()
            ),
            default=(inf, -1),
        )

    def _on(self) -> dict[int, int]:
        count: dict[int, int] = {}
        for run in self.runs.values():
            for link, _ in run.traffic:
                count[link] = count.get(link, 0) + 1
        return count

    def _count(self, now: float) -> None:
        self._shared += (now - self._counted) * sum(n > 1 for n in self._on().values())
        self._slowed += (now - self._counted) * sum(run.share < 1 for run in self.runs.values())
        self._counted = now

    def shared_link_s(self, now: float) -> float:
        self._count(now)
        return self._shared

    def slowed_s(self, now: float) -> float:
        self._count(now)
        return self._slowed


def max_min(flows: dict[int, tuple[float, Traffic]], capacity: Sequence[float]) -> dict[int, float]:
    """Max-min fair rates by progressive filling: all rise together until a demand or a link."""
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
            level = least
            stopped = [job for job, (demand, _) in left.items() if demand <= least]
        else:
            full = {link for link, w in weight.items() if room[link] / w <= level * (1 + 1e-12)}
            stopped = [job for job, (_, over) in left.items() if any(k in full for k, _ in over)]
        for job in stopped:
            rates[job] = level
            for link, w in left.pop(job)[1]:
                room[link] = max(0.0, room[link] - w * level)
    return rates
