"""Dally+: remaining work and waiting in the score, slowdown weighed, whole domains freed.

A job's place is `submitted + weight x GPU-seconds left`: little work goes first, and whoever has
waited long is overtaken by ever less. It waits for GPUs that would slow it by more than
`tolerance`, contention counted, and takes over those of jobs behind it if these free a domain
that is tight enough. Nobody starves: a job that has waited `bound_s` in all is overdue, and no job
that was submitted later starts before it (docs/policies.md has the proof).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf
from typing import ClassVar

from nimble.cluster.job import Job
from nimble.cluster.policies import due
from nimble.cluster.policies.offer import Offer, offer, outranked, take_over
from nimble.cluster.policy import Decision, Memory, Reason
from nimble.cluster.state import JobState
from nimble.cluster.topology import Placement
from nimble.cluster.view import Draft, View


class DallyPlus:
    name = "dally+"
    reasons: ClassVar[dict[str, str]] = {
        "close_enough": "took GPUs that slow it by a factor of {1:.2f}, after {0:.0f} s",
        "overdue": "had waited {1:.0f} s in all and took what there was, slowed by {2:.2f}",
        "freed": "took over a whole {1:.0f}-GPU domain from jobs behind it, after {0:.0f} s",
        "closer": "moved from tier {0:.0f} to tier {1:.0f}, which saves it {2:.0f} s",
    }

    def __init__(
        self,
        lease_s: float = 600.0,
        weight: float = 0.2,
        tolerance: float = 1.2,
        margin: float = 2.0,
        bound_s: float = 172800.0,
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
        links = Links(view, self._worst(view))
        for state in view.expired():
            self._move_closer(view, draft, links, state)
        overdue = [view.jobs[job] for job in memory["due"]["come"]]
        overdue.sort(key=lambda s: (-s.job.priority, s.job.submit_s, s.rank))
        barrier = self._serve(view, draft, links, overdue)

        def place(state: JobState) -> Offer | None:
            if arrival(state) > barrier:
                return None
            return self._place(view, draft, links, state)

        offer(view, draft, place)
        return draft.actions(), memory, min(view.next_expiry(), due.next_at(memory["due"]))

    def _worst(self, view: View) -> tuple[float, float]:
        """Of the running jobs, the one that would give way first."""
        for place, state in view.holders.worst_first(lambda s: self.place_of(s, view)):
            return -state.job.priority, place
        return -inf, -inf

    def _place(self, view: View, draft: Draft, links: Links, state: JobState) -> Offer | None:
        """GPUs that do not slow it too much; else those of jobs behind it, in one domain."""
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
        placement = take_over(view, draft, state, tightest, self._behind(view, draft, links, state))
        if placement is None:
            return None
        links.use(state.job, placement)
        return placement, Reason("freed", (waited_s, view.topology.largest[tightest]))

    def _behind(
        self, view: View, draft: Draft, links: Links, state: JobState
    ) -> Iterator[JobState]:
        """Jobs that stand well behind, have had a lease, and may be overtaken."""
        mine = state.job.submit_s + self.weight * self.margin * self.work(state, view)
        if (-state.job.priority, mine) >= links.worst:
            return
        for holder in outranked(view, draft, state, mine, lambda s: self.place_of(s, view)):
            if view.now - holder.since >= self.lease_s and (
                holder.waited_s < self.bound_s or arrival(state) <= arrival(holder)
            ):
                yield holder

    def _serve(
        self, view: View, draft: Draft, links: Links, overdue: list[JobState]
    ) -> tuple[float, float]:
        """Starts the overdue by arrival. Whoever arrived after the result must not start."""
        for state in overdue:
            if not draft.allows(state):  # a rule keeps it out, not other jobs
                continue
            found = self._place(view, draft, links, state) or self._insist(
                view, draft, links, state
            )
            if found is None:
                return arrival(state)
            draft.start(state, *found)
        return inf, inf

    def _insist(self, view: View, draft: Draft, links: Links, state: JobState) -> Offer | None:
        """The GPUs of later arrivals, or whatever is free."""
        later = [
            holder
            for _, holder in view.holders.worst_first(lambda s: self.place_of(s, view))
            if arrival(holder) > arrival(state)
            and holder.id not in draft.taken
            and not draft.is_released(holder)
        ]
        placement: Placement | None = None
        for tier in range(view.topology.tightest(state.demand) or 0, len(view.topology.tiers)):
            placement = take_over(view, draft, state, tier, later) or draft.fit(state, tier)
            if placement is not None:
                slowdown = links.slowdown(state.job, placement)
                links.use(state.job, placement)
                return placement, Reason("overdue", (view.waited_s(state), slowdown))
        return None

    def _move_closer(self, view: View, draft: Draft, links: Links, state: JobState) -> None:
        """A job at the end of its lease moves if that saves more time than it costs."""
        tightest = view.topology.tightest(state.gpus) or 0
        if state.tier <= tightest:
            return
        left = (1 - view.done(state)) * state.job.iterations
        now_s = left / (state.speed * view.share(state))
        for tier in range(tightest, state.tier):
            closer = draft.fit(state, tier, state.gpus)
            if closer is not None:
                then_s = state.job.checkpoint_s + state.job.restart_s
                then_s += left / view.speed(state.job, closer)
                if then_s < now_s:
                    reason = Reason("closer", (state.tier, tier, now_s - then_s))
                    draft.release(state, reason)
                    draft.start(state, closer, reason)
                return


class Links:
    """What placements would slow jobs by, with the starts of this decision counted."""

    def __init__(self, view: View, worst: tuple[float, float]) -> None:
        self.view = view
        self.worst = worst
        self.used: Counter[int] = Counter()

    def slowdown(self, job: Job, placement: Placement) -> float:
        """Its time per iteration there, relative to the tightest placement alone."""
        view = self.view
        found = view.cost(job, placement)
        alone_s = view.ideal_s(job) / job.iterations
        others = max((self.used[link] for link, _ in found.traffic), default=0)
        return found.iteration_s / alone_s * (1 + others) / view.probe(job, placement)

    def use(self, job: Job, placement: Placement) -> None:
        self.used.update(link for link, _ in self.view.cost(job, placement).traffic)


def arrival(state: JobState) -> tuple[float, float]:
    """Who came later, or has a lower priority, compares as greater."""
    return -state.job.priority, state.job.submit_s
