"""Tiresias: least attained service first, in a few queues; skewed models wait for close GPUs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import inf
from typing import ClassVar

from nimble.cluster.job import Job
from nimble.cluster.policies import due
from nimble.cluster.policies.consolidation import is_skewed, widest
from nimble.cluster.policies.offer import Offer, next_round, offer, outranked, take_over
from nimble.cluster.policy import Decision, Memory, Reason
from nimble.cluster.state import JobState
from nimble.cluster.view import Draft, View

LIMITS_GPU_S = (3250.0, 7200.0, 18000.0)


class Tiresias:
    """Knows the GPU-seconds a job has had, not those it will need.

    A job sinks through the queues as it is served; inside a queue it is first come, first served.
    Whoever has waited `patience` times as long as it has run is lifted to the first queue again.
    """

    name = "tiresias"
    reasons: ClassVar[dict[str, str]] = {
        "attained": "was in queue {1:.0f} after {0:.0f} s of waiting",
        "lifted": "was lifted to the first queue after {0:.0f} s of waiting",
    }

    def __init__(
        self,
        corrected: bool = True,
        limits_gpu_s: Sequence[float] = LIMITS_GPU_S,
        patience: float = 8.0,
        round_s: float = 300.0,
    ) -> None:
        self.corrected = corrected
        self.limits_gpu_s = tuple(limits_gpu_s)
        self.patience = patience
        self.round_s = round_s
        if not corrected:
            self.name = f"{self.name}-released"

    def start(self) -> Memory:
        # due: whom to lift, and when. forgiven: GPU-seconds that no longer count, by job.
        return {"due": due.begin(), "forgiven": {}}

    def standing(self, gpu_s: float, memory: Memory) -> float:
        """Where a job with so much attained service stands; smaller first."""
        return float(bisect_right(self.limits_gpu_s, gpu_s))

    def rank(self, state: JobState, view: View) -> tuple[float, float]:
        return self._stands(state, view, view.memory), state.job.submit_s

    def hold(self, state: JobState, view: View) -> float:
        return state.attained_gpu_s - state.since * state.gpus

    def kind(self, job: Job) -> str:
        return "skewed" if is_skewed(job, self.corrected) else ""

    def decide(self, view: View, memory: Memory, now: float) -> Decision:
        self.learn(view, memory)
        for state in view.ended:
            memory["forgiven"].pop(str(state.id), None)
        if not view.waiting:
            return (), memory, inf
        for state in due.update(view, memory["due"], lambda s: self._lifted_at(s, view, memory)):
            memory["forgiven"][str(state.id)] = state.attained_gpu_s
        draft = view.draft()
        lifted = [view.jobs[job] for job in memory["due"]["come"]]
        first = {state.id for state in lifted}

        def place(state: JobState) -> Offer | None:
            if state.id in first:
                return self._place(view, draft, state, memory, 0.0, "lifted")
            stands = self._stands(state, view, memory)
            return self._place(view, draft, state, memory, stands, "attained")

        offer(view, draft, place, lifted)
        return draft.actions(), memory, next_round(now, self.round_s)

    def learn(self, view: View, memory: Memory) -> None:
        """What ended jobs teach: nothing here."""

    def _stands(self, state: JobState, view: View, memory: Memory) -> float:
        forgiven: float = memory["forgiven"].get(str(state.id), 0.0)
        return self.standing(view.gpu_s(state) - forgiven, memory)

    def _place(
        self, view: View, draft: Draft, state: JobState, memory: Memory, stands: float, code: str
    ) -> Offer | None:
        tier = widest(view.topology, state.job, self.corrected)
        if tier == len(view.topology.tiers) - 1:
            placement = draft.tightest(state)
        else:
            placement = draft.fit(state, tier)
        if placement is None:
            held = view.holders.worst_first(lambda s: self._stands(s, view, memory))
            givers = outranked(draft, state, stands, held)
            placement = take_over(view, draft, state, tier, givers)
        if placement is None:
            return None
        return placement, Reason(code, (view.now - state.since, stands))

    def _lifted_at(self, state: JobState, view: View, memory: Memory) -> float | None:
        """When a job has waited too long for what it had, and starts over in the first queue."""
        if state.run_s > 0 and self._stands(state, view, memory) > 0:
            return state.since + self.patience * state.run_s
        return None
