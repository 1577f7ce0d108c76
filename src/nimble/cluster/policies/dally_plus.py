"""Dally+: remaining work and waiting in the score, slowdown weighed, whole domains freed.

A job's place is `submitted + weight x GPU-seconds left`: little work goes first, and whoever has
waited long is overtaken by ever less. It waits for GPUs that would slow it by more than
`tolerance`, contention counted. Where enough GPUs are free but scattered, small jobs move aside for
it; else it takes over those of jobs behind it if these free a domain that is tight enough. Nobody
starves: a job that has waited `bound_s` in all is overdue, and no job that was submitted later
starts before it (docs/policies.md has the proof).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

from nimble.cluster.job import Job
from nimble.cluster.policies import due
from nimble.cluster.policies.links import Links
from nimble.cluster.policies.offer import Offer, offer, outranked, take_over
from nimble.cluster.policies.room import Room
from nimble.cluster.policy import Decision, Memory, Reason
from nimble.cluster.state import JobState
from nimble.cluster.view import Draft, View


class DallyPlus:
    name = "dally+"
    reasons: ClassVar[dict[str, str]] = {
        "close_enough": "took GPUs that slow it by a factor of {1:.2f}, after {0:.0f} s",
        "overdue": "had waited {1:.0f} s in all and took what there was, slowed by {2:.2f}",
        "freed": "took over a whole {1:.0f}-GPU domain from jobs behind it, after {0:.0f} s",
        "made_room": "jobs moved aside for it in a {1:.0f}-GPU domain, after {0:.0f} s",
        "moved_aside": "moved to another machine, to make room for job {0:.0f}",
        "closer": "moved from tier {0:.0f} to tier {1:.0f}, which saves it {2:.0f} s",
    }

    def __init__(
        self,
        lease_s: float = 600.0,
        weight: float = 2.0,
        tolerance: float = 1.1,
        margin: float = 2.0,
        bound_s: float = 259200.0,
        horizon_s: float = 43200.0,
    ) -> None:
        self.horizon_s = horizon_s
        # Leases end together: one decision instead of many.
        self.lease_s = self.tick_s = lease_s
        self.weight = weight
        self.tolerance = tolerance
        self.margin = margin
        self.bound_s = bound_s

    def start(self) -> Memory:
        return {"due": due.begin()}

    def kind(self, job: Job) -> str:
        return job.profile.name

    def place_of(self, state: JobState, view: View) -> float:
        """Where a job stands; smaller first."""
        return state.job.submit_s + self.weight * self.work(state, view)

    def work(self, state: JobState, view: View) -> float:
        """GPU-seconds left; beyond the horizon further time counts less and less."""
        left_s = view.left_s(state)
        return state.demand * left_s / (1 + left_s / self.horizon_s)

    def rank(self, state: JobState, view: View) -> float:
        return self.place_of(state, view)

    def hold(self, state: JobState, view: View) -> float:
        return self.place_of(state, view) + self.weight * view.now * state.gpus

    def decide(self, view: View, memory: Memory, now: float) -> Decision:
        if not view.waiting:
            return (), memory, inf
        due.update(view, memory["due"], lambda s: s.since + self.bound_s - s.waited_s)
        draft = view.draft()
        room = Room(view, draft, settled_s=self.lease_s, worth_s=self.lease_s)
        worst_first = view.holders.worst_first(lambda s: self.place_of(s, view))
        at = Moment(view, draft, Links(view), room, worst_first)
        for state in view.expired():
            self._move_closer(at, state)
        overdue = [view.jobs[job] for job in memory["due"]["come"]]
        overdue.sort(key=lambda s: (-s.job.priority, s.job.submit_s, s.rank))
        barrier = self._serve(at, overdue)

        def place(state: JobState) -> Offer | None:
            return None if arrival(state) > barrier else self._place(at, state)

        offer(view, draft, place)
        return draft.actions(), memory, min(view.next_expiry(), due.next_at(memory["due"]))

    def _place(self, at: Moment, state: JobState) -> Offer | None:
        """GPUs that do not slow it too much; else a whole domain, moved aside for or taken over."""
        view, draft, links = at.view, at.draft, at.links
        waited_s = view.now - state.since
        tightest = view.topology.tightest(state.demand) or 0
        if state.demand <= draft.free:
            for tier in range(tightest, len(view.topology.tiers)):
                placement = draft.fit(state, tier)
                if placement is not None:
                    slowdown = links.slowdown(state.job, placement)
                    if slowdown <= self.tolerance:
                        links.use(state.job, placement)
                        return placement, Reason("close_enough", (waited_s, slowdown))
        code = "made_room"
        placement = at.room.make(state, tightest)
        if placement is None:
            code = "freed"
            placement = take_over(view, draft, state, tightest, self._behind(at, state))
        if placement is None:
            return None
        links.use(state.job, placement)
        return placement, Reason(code, (waited_s, view.topology.largest[tightest]))

    def _behind(self, at: Moment, state: JobState) -> Iterator[JobState]:
        """Jobs that stand well behind, have had a lease, and may be overtaken."""
        mine = state.job.submit_s + self.weight * self.margin * self.work(state, at.view)
        for holder in outranked(at.draft, state, mine, at.givers()):
            if at.view.now - holder.since >= self.lease_s and (
                holder.waited_s < self.bound_s or arrival(state) <= arrival(holder)
            ):
                yield holder

    def _serve(self, at: Moment, overdue: list[JobState]) -> tuple[float, float]:
        """Starts the overdue by arrival. Whoever arrived after the result must not start."""
        for state in overdue:
            if not at.draft.allows(state):  # a rule keeps it out, not other jobs
                continue
            found = self._place(at, state) or self._insist(at, state)
            if found is None:
                return arrival(state)
            at.draft.start(state, *found)
        return inf, inf

    def _insist(self, at: Moment, state: JobState) -> Offer | None:
        """The GPUs of later arrivals, or whatever is free."""
        view, draft = at.view, at.draft
        later = [
            holder
            for _, holder in at.givers()
            if arrival(holder) > arrival(state)
            and holder.id not in draft.taken
            and not draft.is_released(holder)
        ]
        for tier in range(view.topology.tightest(state.demand) or 0, len(view.topology.tiers)):
            placement = take_over(view, draft, state, tier, later) or draft.fit(state, tier)
            if placement is not None:
                slowdown = at.links.slowdown(state.job, placement)
                at.links.use(state.job, placement)
                return placement, Reason("overdue", (view.waited_s(state), slowdown))
        return None

    def _move_closer(self, at: Moment, state: JobState) -> None:
        """A job at the end of its lease moves if that saves more time than it costs."""
        view, draft = at.view, at.draft
        left = (1 - view.done(state)) * state.job.iterations
        now_s = left / (state.speed * view.share(state))
        for tier in range(view.topology.tightest(state.gpus) or 0, state.tier):
            closer = draft.fit(state, tier, state.gpus)
            if closer is not None:
                then_s = state.job.checkpoint_s + state.job.restart_s
                then_s += left / view.speed(state.job, closer)
                if then_s < now_s:
                    reason = Reason("closer", (state.tier, tier, now_s - then_s))
                    draft.release(state, reason)
                    draft.start(state, closer, reason)
                return


@dataclass(slots=True)
class Moment:
    """One decision: the cluster, what is decided so far, and what need be worked out only once."""

    view: View
    draft: Draft
    links: Links
    room: Room
    worst_first: Iterator[tuple[float, JobState]]
    known: list[tuple[float, JobState]] = field(default_factory=list)

    def givers(self) -> Iterator[tuple[float, JobState]]:
        """Running jobs with their places, the last first; found as far as somebody asks."""
        yield from self.known
        for giver in self.worst_first:
            self.known.append(giver)
            yield giver


def arrival(state: JobState) -> tuple[float, float]:
    """Who came later, or has a lower priority, compares as greater."""
    return -state.job.priority, state.job.submit_s
