"""LWF-k: least service first, never preempted; at most two jobs share a link, and few do."""

from __future__ import annotations

from math import inf
from typing import ClassVar

from nimble.cluster.fit import Choice
from nimble.cluster.job import Job
from nimble.cluster.policies.offer import Offer, next_round, offer
from nimble.cluster.policy import Decision, Memory, Reason
from nimble.cluster.state import JobState
from nimble.cluster.topology import Placement
from nimble.cluster.view import Draft, View


class Lwf:
    """Knows how long jobs will take, and who sends over which link.

    Jobs of up to `kappa` GPUs go to the least loaded machine that holds them whole; larger ones
    take whole machines, the fewest that do. Those that must cross links are admitted where all of
    these are unused, or used by one job that sends much less or much more: then both are slowed
    little. The others wait for a link at most `patience_s`.
    """

    name = "lwf"
    reasons: ClassVar[dict[str, str]] = {
        "least_loaded": "took the least loaded machine that holds it after {0:.0f} s",
        "unshared": "took {1:.0f} machines whose links were free enough after {0:.0f} s",
        "shared_late": "waited {0:.0f} s for its links and then shared them",
    }

    def __init__(
        self, kappa: int = 8, ratio: float = 2.0, patience_s: float = 3600.0, round_s: float = 60.0
    ) -> None:
        self.kappa = kappa
        self.ratio = ratio
        self.patience_s = patience_s
        self.round_s = round_s

    def rank(self, state: JobState, view: View) -> float:
        return view.left_s(state) * state.demand

    def kind(self, job: Job) -> str:
        return job.profile.name

    def decide(self, view: View, memory: Memory, now: float) -> Decision:
        if not view.waiting or not view.free:
            return (), memory, inf
        draft = view.draft()
        offer(view, draft, lambda state: self._place(view, draft, state))
        waits = any(b.gpus <= draft.free for b in view.waiting.buckets())
        return draft.actions(), memory, next_round(now, self.round_s) if waits else inf

    def _place(self, view: View, draft: Draft, state: JobState) -> Offer | None:
        waited_s = view.now - state.since
        if state.demand > draft.free:
            return None
        small = state.demand <= self.kappa
        whole = draft.fit(state, 0, choice=Choice.MOST if small else Choice.BEST)
        if whole is not None:
            return whole, Reason("least_loaded", (waited_s,))
        placement = draft.tightest(state)
        if placement is None:
            return None
        if self._admitted(view, state.job, placement):
            return placement, Reason("unshared", (waited_s, len(placement)))
        if waited_s >= self.patience_s:
            return placement, Reason("shared_late", (waited_s,))
        return None

    def _admitted(self, view: View, job: Job, placement: Placement) -> bool:
        for link, _ in view.cost(job, placement).traffic:
            flows = view.flows_on(link)
            if flows > 1:
                return False
            if flows == 1:
                share = view.probe(job, placement)
                if share < 1 / self.ratio:
                    return False
        return True
