"""What a policy sees: the jobs, the free GPUs, and a draft to try decisions on. Never a copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush, heapreplace
from math import ceil, inf
from types import MappingProxyType
from typing import Any, NoReturn

from nimble._cluster import Fleet
from nimble.cluster.draft import Draft
from nimble.cluster.fit import Choice, tightest
from nimble.cluster.holders import Holders
from nimble.cluster.job import Job
from nimble.cluster.keeper import Keeper
from nimble.cluster.network import Collective, Cost, cost
from nimble.cluster.policy import Memory
from nimble.cluster.profile import Profile
from nimble.cluster.rules import Rules
from nimble.cluster.state import JobState
from nimble.cluster.topology import Placement, Topology
from nimble.cluster.waiting import Bucket, Waiting


class View:
    """The cluster now. Everything is kept up to date as things happen; policies only read.

    Whoever sets one of its fields, or changes `running` or `jobs`, gets an error. `running` is in
    the order in which the jobs last began to run.
    """

    topology: Topology
    rules: Rules
    collective: Collective
    now: float
    waiting: Waiting
    running: Mapping[int, JobState]
    # Both, until they finish; those that have not arrived are not to be seen.
    jobs: Mapping[int, JobState]
    # Jobs that have ended just now.
    ended: tuple[JobState, ...]
    # What the policy remembers, for its `rank`.
    memory: Memory
    # Running jobs in the order of the policy's `hold`; empty without it.
    holders: Holders
    lease_s: float
    tick_s: float
    _running: dict[int, JobState]
    _jobs: dict[int, JobState]
    _fleet: Fleet
    _keeper: Keeper | None
    _scratch: _Scratch
    _costs: dict[tuple[int, int, str], Cost]
    _ideal: dict[tuple[int, int], float]
    _kept: list[Profile]

    __slots__ = (
        "_costs",
        "_fleet",
        "_ideal",
        "_jobs",
        "_keeper",
        "_kept",
        "_running",
        "_scratch",
        "collective",
        "ended",
        "holders",
        "jobs",
        "lease_s",
        "memory",
        "now",
        "rules",
        "running",
        "tick_s",
        "topology",
        "waiting",
    )

    def __init__(
        self,
        topology: Topology,
        fleet: Fleet,
        *,
        rules: Rules,
        keeper: Keeper | None = None,
        collective: Collective = Collective.RING,
        lease_s: float = inf,
        tick_s: float = 0.0,
    ) -> None:
        running: dict[int, JobState] = {}
        jobs: dict[int, JobState] = {}
        self._set(
            topology=topology,
            rules=replace(rules, quotas=MappingProxyType(dict(rules.quotas))),
            collective=collective,
            now=0.0,
            waiting=Waiting(),
            running=MappingProxyType(running),
            jobs=MappingProxyType(jobs),
            ended=(),
            memory={},
            holders=Holders(),
            lease_s=lease_s,
            tick_s=tick_s,
            _running=running,
            _jobs=jobs,
            _fleet=fleet,
            _keeper=keeper,
            _scratch=_Scratch(),
            _costs={},
            _ideal={},
            _kept=[],
        )

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"view.{name} cannot be set: policies only read the view")

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def free(self) -> int:
        """GPUs that are free and on machines that are up and not being drained."""
        return self._fleet.free

    def free_in(self, domain: int) -> int:
        """The same inside one machine, rack, ... (see Topology for their numbers)."""
        return self._fleet.free_in(domain)

    def done(self, state: JobState) -> float:
        """The share of its work that is done, 0..1."""
        done = self._fleet.done(state.id, self.now) if state.gpus else state.done
        return done / state.job.iterations

    def share(self, state: JobState) -> float:
        """Its speed relative to having its links to itself: 1 unless links are contended."""
        return self._fleet.share(state.id) if state.gpus else 0.0

    def run_s(self, state: JobState) -> float:
        """Seconds with GPUs so far, overheads included."""
        return state.run_s + (self.now - state.since if state.gpus else 0.0)

    def waited_s(self, state: JobState) -> float:
        """Seconds without GPUs so far."""
        return state.waited_s + (0.0 if state.gpus else self.now - state.since)

    def gpu_s(self, state: JobState) -> float:
        """GPU-seconds held so far (Tiresias's attained service)."""
        return state.attained_gpu_s + (self.now - state.since) * state.gpus

    def left_s(self, state: JobState) -> float:
        """Seconds it still needs, alone at its tightest placement; nobody knows it live."""
        return (1.0 - self.done(state)) * state.ideal_s

    def cost(self, job: Job, placement: Placement) -> Cost:
        """What an iteration of `job` takes on `placement`, alone, and what it sends where."""
        profile = job.profile
        if len(placement) > 1:
            return cost(self.topology, profile, placement, self.collective)
        ((machine, gpus),) = placement
        key = (id(profile), gpus, self.topology.machines[machine].kind)
        found = self._costs.get(key)
        if found is None:
            self._kept.append(profile)  # so that its id stays its own
            found = cost(self.topology, profile, placement, self.collective)
            self._costs[key] = found
        return found

    def speed(self, job: Job, placement: Placement) -> float:
        """Iterations at gpus_max per second on `placement`, alone."""
        gpus = sum(count for _, count in placement)
        return gpus / job.gpus_max / self.cost(job, placement).iteration_s

    def probe(self, job: Job, placement: Placement) -> float:
        """The share of its speed alone that it would have there beside the jobs that run now."""
        found = self.cost(job, placement)
        if not found.traffic:
            return 1.0
        return self._fleet.probe(job.profile.bytes / found.iteration_s, found.traffic)

    def flows_on(self, link: int) -> int:
        """How many running jobs send over a link."""
        return self._fleet.flows_on(link)

    def ideal_s(self, job: Job) -> float:
        """Its time alone at the tightest feasible placement of gpus_max GPUs."""
        key = (id(job.profile), job.gpus_max)
        iteration_s = self._ideal.get(key)
        if iteration_s is None:
            placement = tightest(self.topology, job.gpus_max)
            if placement is None:
                placement = tightest(self.topology, self.topology.gpus)
            assert placement is not None
            self._kept.append(job.profile)
            iteration_s = self._ideal[key] = self.cost(job, placement).iteration_s
        return iteration_s * job.iterations

    def expired(self) -> list[JobState]:
        """Running jobs whose lease ends now: `lease_s` after they began to run, and so on.

        The first end is rounded up to a multiple of `tick_s`. A lease that ended while nobody
        asked has been renewed: so leases cost nothing while nobody waits.
        """
        now = self.now
        scratch = self._scratch
        if scratch.asked_at != now:
            ended = []
            leases = scratch.leases
            while leases and leases[0][0] <= now:
                at, job, since = leases[0]
                state = self._running.get(job)
                if state is None or state.since != since:
                    heappop(leases)
                    continue
                if at == now:
                    ended.append(state)
                    following = at + self.lease_s
                else:
                    following = at + ceil((now - at) / self.lease_s) * self.lease_s
                    if following == now:  # asked for now, after a while in which nobody asked
                        ended.append(state)
                        following += self.lease_s
                heapreplace(leases, (following, job, since))
            scratch.asked_at, scratch.expired = now, ended
        return scratch.expired

    def next_expiry(self) -> float:
        """When the next lease ends; inf without leases or running jobs."""
        self.expired()
        leases = self._scratch.leases
        while leases:
            at, job, since = leases[0]
            state = self._running.get(job)
            if state is not None and state.since == since:
                return at
            heappop(leases)
        return inf

    def draft(self) -> Draft:
        """A decision in the making: see Draft. One at a time; a new one discards the last."""
        self.discard()
        draft = self._scratch.draft = Draft(self)
        return draft

    def discard(self) -> None:
        """Undoes what the last draft took and gave. The simulator calls it after every decision."""
        scratch = self._scratch
        if scratch.draft is not None:
            scratch.draft._undo()
            scratch.draft = None

    def _leased(self, state: JobState) -> None:
        if self.lease_s < inf:
            leases = self._scratch.leases
            end = state.since + self.lease_s
            if self.tick_s:
                end = ceil(end / self.tick_s) * self.tick_s
            heappush(leases, (end, state.id, state.since))
            if len(leases) > 2 * len(self._running) + 64:
                running = self._running
                leases[:] = [
                    entry
                    for entry in leases
                    if entry[1] in running and running[entry[1]].since == entry[2]
                ]
                heapify(leases)


class _Scratch:
    """What a view itself has to remember from one question to the next."""

    __slots__ = ("asked_at", "draft", "expired", "leases")

    def __init__(self) -> None:
        self.draft: Draft | None = None
        self.leases: list[tuple[float, int, float]] = []
        self.asked_at = -inf
        self.expired: list[JobState] = []


# How the simulator sets what changes: as quick as an attribute, and closed to policies.
set_now = View.__dict__["now"].__set__
set_ended = View.__dict__["ended"].__set__
set_memory = View.__dict__["memory"].__set__


__all__ = ["Bucket", "Choice", "Draft", "View"]
