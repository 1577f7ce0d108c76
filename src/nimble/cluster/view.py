"""What a policy sees: the jobs, the free GPUs, and a draft to try decisions on. Never a copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain
from math import ceil, inf

from nimble._cluster import Fleet
from nimble.cluster.fit import Choice, tightest
from nimble.cluster.holders import Holders
from nimble.cluster.job import Job
from nimble.cluster.keeper import Keeper
from nimble.cluster.network import Collective, Cost, cost
from nimble.cluster.policy import Action, Kind, Memory, Reason
from nimble.cluster.profile import Profile
from nimble.cluster.rules import Rules
from nimble.cluster.state import JobState
from nimble.cluster.topology import Placement, Topology
from nimble.cluster.waiting import Bucket, Waiting


class View:
    """The cluster now. Everything is kept up to date as things happen; policies only read.

    `running` is in the order in which the jobs last began to run.
    """

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
        self.topology = topology
        self.rules = rules
        self.keeper = keeper
        self.collective = collective
        self.now = 0.0
        self.waiting = Waiting()
        self.running: dict[int, JobState] = {}
        # Both, until they finish; those that have not arrived are not to be seen.
        self.jobs: dict[int, JobState] = {}
        # Jobs that have ended just now.
        self.ended: list[JobState] = []
        # What the policy remembers, for its `rank`.
        self.memory: Memory = {}
        # Running jobs in the order of the policy's `hold`; empty without it.
        self.holders = Holders()
        self.lease_s = lease_s
        self.tick_s = tick_s
        self._fleet = fleet
        self._draft: Draft | None = None
        self._costs: dict[tuple[int, int, str], Cost] = {}
        self._ideal: dict[tuple[int, int], float] = {}
        self._kept: list[Profile] = []
        self._leases: list[tuple[float, int, float]] = []
        self._expired: tuple[float, list[JobState]] = (-inf, [])

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
        if self._expired[0] != now:
            ended = []
            leases = self._leases
            while leases and leases[0][0] <= now:
                at, job, since = leases[0]
                state = self.running.get(job)
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
            self._expired = (now, ended)
        return self._expired[1]

    def next_expiry(self) -> float:
        """When the next lease ends; inf without leases or running jobs."""
        self.expired()
        leases = self._leases
        while leases:
            at, job, since = leases[0]
            state = self.running.get(job)
            if state is not None and state.since == since:
                return at
            heappop(leases)
        return inf

    def draft(self) -> Draft:
        """A decision in the making: see Draft. One at a time; a new one discards the last."""
        self.discard()
        self._draft = Draft(self)
        return self._draft

    def discard(self) -> None:
        """Undoes what the last draft took and gave. The simulator calls it after every decision."""
        if self._draft is not None:
            self._draft._undo()
            self._draft = None

    def _leased(self, state: JobState) -> None:
        if self.lease_s < inf:
            leases = self._leases
            end = state.since + self.lease_s
            if self.tick_s:
                end = ceil(end / self.tick_s) * self.tick_s
            heappush(leases, (end, state.id, state.since))
            if len(leases) > 2 * len(self.running) + 64:
                running = self.running
                self._leases = [
                    entry
                    for entry in leases
                    if entry[1] in running and running[entry[1]].since == entry[2]
                ]
                heapify(self._leases)


class Draft:
    """Decisions tried out: what it takes and releases is gone or free for its next question.

    Nothing outside sees it; `actions()` says what it comes to. A policy may also build Actions
    itself: the simulator checks every one again.
    """

    __slots__ = (
        "_actions",
        "_fleet",
        "_journal",
        "_keeper",
        "_released",
        "_spoken",
        "_view",
        "taken",
    )

    def __init__(self, view: View) -> None:
        self._view = view
        self._fleet = view._fleet
        self._journal: list[tuple[bool, Sequence[JobState], Placement]] = []
        self._actions: list[Action] = []
        self._released: dict[int, tuple[JobState, Reason]] = {}
        self._keeper = view.keeper
        # GPUs that tenants would hold more than they do now, by this draft.
        self._spoken: Counter[str] = Counter()
        # Ids of the jobs that this draft has started.
        self.taken: set[int] = set()

    @property
    def free(self) -> int:
        return self._fleet.free

    def free_in(self, domain: int) -> int:
        return self._fleet.free_in(domain)

    def buckets(self) -> list[Bucket]:
        """Buckets of waiting jobs that are not empty and want no more than what is free."""
        return self._view.waiting.buckets(self._fleet.free)

    def fit(
        self,
        state: JobState,
        tier: int,
        gpus: int | None = None,
        choice: Choice = Choice.BEST,
    ) -> Placement | None:
        """GPUs for `state` inside one domain of `tier`, or None (fit.py says which).

        `gpus`: other than its demand, for elastic jobs. Rules hold: a tenant at its quota, or GPUs
        reserved for others, give None.
        """
        want = state.job.gpus_min if gpus is None else gpus
        keeper = self._keeper
        if keeper is None:
            return self._fleet.fit(want, tier, choice)
        if want > self._room(state):
            return None
        return self._fleet.fit(want, tier, choice, keeper.allowed(state.job))

    def tightest(self, state: JobState, gpus: int | None = None) -> Placement | None:
        """GPUs for `state` in the lowest tier that has them free now."""
        want = state.job.gpus_min if gpus is None else gpus
        if want > self._fleet.free:
            return None
        for tier, most in enumerate(self._view.topology.largest):
            if most >= want:
                placement = self.fit(state, tier, gpus)
                if placement is not None:
                    return placement
        return None

    def available(self, placement: Placement) -> bool:
        """Whether all of these GPUs are free."""
        return all(self._fleet.free_in(machine) >= gpus for machine, gpus in placement)

    def permits(self, state: JobState, placement: Placement) -> bool:
        """Whether all of these GPUs are free, and the rules let it have them."""
        if not self.available(placement):
            return False
        keeper = self._keeper
        return keeper is None or (
            sum(gpus for _, gpus in placement) <= self._room(state)
            and keeper.may_use(state.job, placement)
        )

    def allows(self, state: JobState) -> bool:
        """Whether the rules would let it start if enough GPUs were free."""
        keeper = self._keeper
        return keeper is None or (
            state.demand <= self._room(state) and keeper.could_start(state.job)
        )

    def _room(self, state: JobState) -> float:
        assert self._keeper is not None
        return self._keeper.room(state.job, self._spoken[state.job.tenant])

    def _speak(self, state: JobState, placement: Placement, sign: int) -> None:
        if self._keeper is not None:
            self._spoken[state.job.tenant] += sign * sum(gpus for _, gpus in placement)

    def start(self, state: JobState, placement: Placement, reason: Reason) -> None:
        """Start a waiting job, or put one that was released on `placement` (maybe its own)."""
        self._fleet.take(placement)
        self._journal.append((True, (state,), placement))
        self._speak(state, placement, 1)
        released = self._released.pop(state.id, None)
        if released is None:
            self._actions.append(Action(Kind.START, state.id, placement, reason))
        elif placement != state.placement:
            gpus = sum(count for _, count in placement)
            kind = Kind.MOVE if gpus == state.gpus else Kind.RESIZE
            self._actions.append(Action(kind, state.id, placement, reason))
        self.taken.add(state.id)

    def release(self, state: JobState, reason: Reason) -> None:
        """Take a running job's GPUs back. Unless started again here, it is preempted."""
        self.release_all((state,), reason)

    def release_all(self, states: Sequence[JobState], reason: Reason) -> None:
        """The same for many at once, which is much cheaper."""
        placement = tuple(chain.from_iterable([state.placement for state in states]))
        self._fleet.give(placement)
        self._journal.append((False, states, placement))
        for state in states:
            self._released[state.id] = (state, reason)
            self._speak(state, state.placement, -1)

    def is_released(self, state: JobState) -> bool:
        """Whether this draft took its GPUs back and has not started it again."""
        return state.id in self._released

    def mark(self) -> int:
        """Where the draft stands, for `back_to`."""
        return len(self._journal)

    def back_to(self, mark: int) -> None:
        """Undoes releases made since `mark`. (Starts cannot be undone.)"""
        for took, states, placement in reversed(self._journal[mark:]):
            if took:
                raise ValueError(f"job {states[0].id} was started since: it cannot be undone")
            self._fleet.take(placement, True)
            for state in states:
                self._speak(state, state.placement, 1)
                del self._released[state.id]
        del self._journal[mark:]

    def actions(self) -> list[Action]:
        """What the draft comes to: stops, then moves and resizes, then starts.

        (A job that was released and started again where it was, is left alone.)
        """
        stops = [Action(Kind.STOP, i, (), reason) for i, (_, reason) in self._released.items()]
        changes = [action for action in self._actions if action.kind is not Kind.START]
        starts = [action for action in self._actions if action.kind is Kind.START]
        return stops + changes + starts

    def _undo(self) -> None:
        fleet = self._fleet
        for took, _, placement in reversed(self._journal):
            if took:
                fleet.give(placement)
            else:
                fleet.take(placement, True)
        self._journal = []


__all__ = ["Bucket", "Choice", "Draft", "View"]
