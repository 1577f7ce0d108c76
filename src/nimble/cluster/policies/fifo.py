"""FIFO with backfill: by arrival; a job that does not fit lets smaller ones pass, for a while."""

from __future__ import annotations

from math import inf

from nimble.cluster.policies.offer import Offer, offer
from nimble.cluster.policy import Decision, Memory, Reason
from nimble.cluster.state import JobState
from nimble.cluster.view import View


class Fifo:
    """Knows nothing of jobs but their demand, so there is no time at which GPUs could be reserved
    for the first job. Instead nobody passes it once it has waited `patience_s`: GPUs that come free
    are left until it fits. `backfill=False`: nobody ever passes.
    """

    name = "fifo"

    def __init__(self, backfill: bool = True, patience_s: float = 172800.0) -> None:
        self.patience_s = patience_s if backfill else 0.0

    def rank(self, state: JobState, view: View) -> float:
        return state.job.submit_s

    def why_waiting(self, state: JobState, view: View, memory: Memory, now: float) -> Reason:
        return Reason("too_few_free", (state.demand, view.free))

    def decide(self, view: View, memory: Memory, now: float) -> Decision:
        if not view.waiting or not view.free:
            return (), memory, inf
        draft = view.draft()
        code = "tightest_free"
        closed = False

        def place(state: JobState) -> Offer | None:
            nonlocal code, closed
            placement = None if closed else draft.tightest(state)
            if placement is not None:
                return placement, Reason(code, (now - state.since,))
            code = "backfilled"
            # Whom a rule keeps out does not keep out others.
            closed = closed or (now - state.since >= self.patience_s and draft.allows(state))
            return None

        offer(view, draft, place)
        return draft.actions(), memory, inf
