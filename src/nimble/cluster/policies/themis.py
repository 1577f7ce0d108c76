"""Themis: GPUs go to those whose finish is late by the largest factor, in auctions for leases."""

from __future__ import annotations

from math import ceil, inf, log
from typing import ClassVar

from nimble.cluster.policies.offer import dealt
from nimble.cluster.policy import Decision, Memory, Reason
from nimble.cluster.state import JobState
from nimble.cluster.view import Draft, View


class Themis:
    """Knows how long jobs will take, from what they report.

    A job's finish-time ratio is (time since submission + time left) / the time it would take on its
    fair share of the GPUs. GPUs that are free or whose lease has ended are auctioned: of the jobs
    without GPUs, the share `1 - openness` with the largest ratios bids. The paper's auction
    maximises the product of the bidders' inverse ratios; here bids are served greedily, by how much
    a lease on the best free placement adds to its logarithm per GPU. What they leave goes to the
    others, the largest ratio first.
    """

    name = "themis"
    reasons: ClassVar[dict[str, str]] = {
        "bid_won": "won an auction after {0:.0f} s, with a finish-time ratio of {1:.2f}",
        "left_over": "took what the bidders left after {0:.0f} s, at a ratio of {1:.2f}",
        "lease_lost": "its lease ended, and jobs that are later than it won its GPUs",
    }

    def __init__(self, openness: float = 0.8, lease_s: float = 600.0) -> None:
        self.openness = openness
        # Leases end together: an auction is for whole machines, not for what one job held.
        self.lease_s = self.tick_s = lease_s

    def rank(self, state: JobState, view: View) -> float:
        return state.job.submit_s

    def decide(self, view: View, memory: Memory, now: float) -> Decision:
        if not view.waiting:
            return (), memory, inf
        ended = view.expired()
        draft = view.draft()
        if ended or view.free:
            draft.release_all(ended, Reason("lease_lost"))
            self._auction(view, draft, ended)
        return draft.actions(), memory, view.next_expiry()

    def _auction(self, view: View, draft: Draft, ended: list[JobState]) -> None:
        jobs = [s for s in (*view.waiting, *ended) if s.demand <= draft.free]
        late = {s.id: ratio(view, s) for s in jobs}
        jobs.sort(key=lambda s: (-s.job.priority, -late[s.id], s.id))
        bidding = ceil((1 - self.openness) * len(jobs))
        bids = [(-s.job.priority, -self._bid(view, draft, s), s.id, s) for s in jobs[:bidding]]
        served = [bid[-1] for bid in sorted(bids)] + jobs[bidding:]
        won = {state.id for state in served[:bidding]}
        for state, placement in dealt(draft, served):
            code = "bid_won" if state.id in won else "left_over"
            draft.start(state, placement, Reason(code, (view.now - state.since, late[state.id])))

    def _bid(self, view: View, draft: Draft, state: JobState) -> float:
        """log(its ratio without a lease / with one), per GPU."""
        placement = draft.tightest(state)
        if placement is None:
            return 0.0
        without_s = finish_s(view, state) + self.lease_s
        speed = view.speed(state.job, placement) / state.job.iterations * state.ideal_s
        gained_s = min(self.lease_s * speed, view.left_s(state))
        return log(without_s / (without_s - gained_s)) / state.demand


def finish_s(view: View, state: JobState) -> float:
    """From submission to its end, if it ran alone from now on."""
    return view.now - state.job.submit_s + view.left_s(state)


def ratio(view: View, state: JobState) -> float:
    """Its finish-time ratio if it ran alone from now on."""
    share = view.topology.gpus / len(view.jobs)
    return finish_s(view, state) / (state.ideal_s * max(1.0, state.demand / share))
