"""Optimus: every job its least number of GPUs, then one more to whom it saves the most time."""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from math import floor, inf
from typing import ClassVar

from nimble.cluster.fit import Choice, tightest
from nimble.cluster.policies.offer import Offer, next_round, offer
from nimble.cluster.policy import Decision, Memory, Reason
from nimble.cluster.state import JobState
from nimble.cluster.topology import Placement
from nimble.cluster.view import Draft, View


class Optimus:
    """Knows how long jobs will take at each number of GPUs.

    Jobs start by arrival with the fewest GPUs they can do with. Every `round_s` the GPUs that
    elastic jobs hold beyond that are dealt out anew, one at a time; a job grows only if that saves
    more time than the change costs. Rigid jobs are never preempted.
    """

    name = "optimus"
    reasons: ClassVar[dict[str, str]] = {
        "least": "started with its least number of GPUs after {0:.0f} s",
        "dealt": "got {0:.0f} GPUs; it had {1:.0f}",
        "undealt": "its GPUs went to others",
    }

    def __init__(self, round_s: float = 600.0) -> None:
        self.round_s = round_s

    def start(self) -> Memory:
        return {"round": -1}

    def rank(self, state: JobState, view: View) -> float:
        return state.job.submit_s

    def decide(self, view: View, memory: Memory, now: float) -> Decision:
        elastic = [s for s in view.running.values() if s.job.gpus_min < s.job.gpus_max]
        if not view.waiting and not elastic:
            return (), memory, inf
        draft = view.draft()
        this_round = floor(now / self.round_s)
        dealing = memory["round"] != this_round
        memory["round"] = this_round
        held = 0
        if dealing:
            for state in elastic:
                draft.release(state, Reason("undealt"))
            # The least of each is its own before anybody starts.
            held = sum(state.demand for state in elastic)

        def place(state: JobState) -> Offer | None:
            if state.demand > draft.free - held:
                return None
            placement = most_free(view, draft, state, state.demand)
            return None if placement is None else (placement, Reason("least", (now - state.since,)))

        offer(view, draft, place)
        if dealing:
            self._deal(view, draft, elastic)
        return draft.actions(), memory, next_round(now, self.round_s)

    def _deal(self, view: View, draft: Draft, elastic: list[JobState]) -> None:
        spare = draft.free - sum(state.demand for state in elastic)
        gpus = {state.id: state.demand for state in elastic}
        times = Times(view)
        heads = [(-times.saved(s, s.demand), s.id, s) for s in elastic]
        heapify(heads)
        while heads and spare > 0 and heads[0][0] < 0:
            _, job, state = heads[0]
            gpus[job] += 1
            spare -= 1
            if gpus[job] == state.job.gpus_max:
                heappop(heads)
            else:
                heapreplace(heads, (-times.saved(state, gpus[job]), job, state))
        # Who stays as it is goes first, so that its GPUs are still there.
        elastic.sort(key=lambda s: (gpus[s.id] != s.gpus, s.id))
        for state in elastic:
            want, had = gpus[state.id], state.gpus
            costs_s = state.job.checkpoint_s + state.job.restart_s
            if want > had and times.left_s(state, had) - times.left_s(state, want) <= costs_s:
                want = had
            placement: Placement | None = None
            if want == had and draft.permits(state, state.placement):
                placement = state.placement
            while placement is None and want >= state.demand:
                placement = most_free(view, draft, state, want)
                want -= placement is None
            if placement is not None:
                draft.start(state, placement, Reason("dealt", (want, had)))


class Times:
    """What each number of GPUs would leave a job to run, on the tightest placement."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.placements: dict[int, Placement] = {}

    def left_s(self, state: JobState, gpus: int) -> float:
        placement = self.placements.get(gpus)
        if placement is None:
            found = tightest(self.view.topology, gpus)
            assert found is not None, "no more is dealt than the cluster has"
            placement = self.placements[gpus] = found
        left = (1 - self.view.done(state)) * state.job.iterations
        return left / self.view.speed(state.job, placement)

    def saved(self, state: JobState, gpus: int) -> float:
        """By one GPU more."""
        return self.left_s(state, gpus) - self.left_s(state, gpus + 1)


def most_free(view: View, draft: Draft, state: JobState, gpus: int) -> Placement | None:
    """The emptiest machine, else the emptiest rack, ... that has them."""
    if gpus > draft.free:
        return None
    for tier, most in enumerate(view.topology.largest):
        if most >= gpus:
            placement = draft.fit(state, tier, gpus, Choice.MOST)
            if placement is not None:
                return placement
    return None
