"""LWF-k: least service first, never preempted; at most two jobs share a link, unlike ones."""

from __future__ import annotations

from collections import defaultdict
from math import inf
from typing import ClassVar

from nimble.cluster.fit import Choice
from nimble.cluster.job import Job
from nimble.cluster.policies.offer import Offer, next_round, offer
from nimble.cluster.policy import Decision, Memory, Reason
from nimble.cluster.state import JobState
from nimble.cluster.view import Draft, View


class Lwf:
    """Knows how long jobs will take, and who sends over which link.

    Jobs of up to `kappa` GPUs go to the least loaded machine, to balance the machines; larger ones
    are consolidated: the fewest machines that do. Those that must cross links are admitted where
    each of these is unused, or used by one job whose messages are `ratio` times as large or as
    small: then the small ones slip in between. The others wait for a link at most `patience_s`.
    """

    name = "lwf"
    reasons: ClassVar[dict[str, str]] = {
        "least_loaded": "took the least loaded machine that holds it after {0:.0f} s",
        "in_one_machine": "took the fullest machine that holds it after {0:.0f} s",
        "unshared": "took {1:.0f} machines whose links were free enough after {0:.0f} s",
        "shared_late": "waited {0:.0f} s for its links and then shared them",
    }

    def __init__(
        self, kappa: int = 1, ratio: float = 2.0, patience_s: float = 3600.0, round_s: float = 60.0
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
        sent = messages(view)
        offer(view, draft, lambda state: self._place(view, draft, sent, state))
        waits = any(b.gpus <= draft.free for b in view.waiting.buckets())
        return draft.actions(), memory, next_round(now, self.round_s) if waits else inf

    def _place(
        self, view: View, draft: Draft, sent: dict[int, list[int]], state: JobState
    ) -> Offer | None:
        waited_s = view.now - state.since
        if state.demand > draft.free:
            return None
        small = state.demand <= self.kappa
        whole = draft.fit(state, 0, choice=Choice.MOST if small else Choice.BEST)
        if whole is not None:
            return whole, Reason("least_loaded" if small else "in_one_machine", (waited_s,))
        placement = draft.tightest(state)
        if placement is None:
            return None
        links = [link for link, _ in view.cost(state.job, placement).traffic]
        if all(self._admitted(state.job, sent[link]) for link in links):
            reason = Reason("unshared", (waited_s, len(placement)))
        elif waited_s >= self.patience_s:
            reason = Reason("shared_late", (waited_s,))
        else:
            return None
        for link in links:
            sent[link].append(state.job.profile.bytes)
        return placement, reason

    def _admitted(self, job: Job, others: list[int]) -> bool:
        if not others:
            return True
        less, more = sorted((job.profile.bytes, others[0]))
        return len(others) == 1 and more >= self.ratio * less


def messages(view: View) -> dict[int, list[int]]:
    """Of each link, the bytes that each running job on it all-reduces at a time."""
    sent: dict[int, list[int]] = defaultdict(list)
    for state in view.running.values():
        if state.tier > 0:
            for link, _ in view.cost(state.job, state.placement).traffic:
                sent[link].append(state.job.profile.bytes)
    return sent
