"""SRTF: whoever needs the least time goes first, and takes GPUs of those that need more."""

from __future__ import annotations

from math import inf

from nimble.cluster.policies.offer import Offer, offer, outranked, take_over
from nimble.cluster.policy import Decision, Memory, Reason
from nimble.cluster.state import JobState
from nimble.cluster.view import View


class Srtf:
    """Knows how long jobs will take, which nobody does."""

    name = "srtf"

    def need(self, state: JobState, view: View) -> float:
        return view.left_s(state)

    def rank(self, state: JobState, view: View) -> float:
        return self.need(state, view)

    def hold(self, state: JobState, view: View) -> float:
        return view.now + view.left_s(state)

    def decide(self, view: View, memory: Memory, now: float) -> Decision:
        if not view.waiting:
            return (), memory, inf
        draft = view.draft()
        top = len(view.topology.tiers) - 1

        def place(state: JobState) -> Offer | None:
            placement = draft.tightest(state)
            if placement is None:
                # What changing over costs counts against it.
                mine = self.need(state, view) + state.job.checkpoint_s + state.job.restart_s
                held = view.holders.worst_first(lambda s: self.need(s, view))
                givers = outranked(draft, state, mine, held)
                placement = take_over(view, draft, state, top, givers)
            if placement is None:
                return None
            return placement, Reason("tightest_free", (now - state.since,))

        offer(view, draft, place)
        return draft.actions(), memory, inf
