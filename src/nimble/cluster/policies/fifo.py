"""FIFO with backfill: by arrival; a job that does not fit now lets later, smaller ones pass."""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from math import inf

from nimble.cluster.policy import Decision, Memory, Reason
from nimble.cluster.state import JobState
from nimble.cluster.view import View


class Fifo:
    """`backfill=False`: nobody passes the first job, even if it has to wait."""

    name = "fifo"

    def __init__(self, backfill: bool = True) -> None:
        self.backfill = backfill

    def rank(self, state: JobState, view: View) -> float:
        return state.job.submit_s

    def why_waiting(self, state: JobState, view: View, memory: Memory, now: float) -> Reason:
        return Reason("too_few_free", (state.demand, view.free))

    def decide(self, view: View, memory: Memory, now: float) -> Decision:
        waiting = view.waiting
        if not waiting or not view.free:
            return (), memory, inf
        draft = view.draft()
        # The first of each demand; once a demand does not fit, nobody with it does.
        everyone = waiting.buckets()
        small = [bucket for bucket in everyone if bucket.gpus <= draft.free]
        passed = len(small) < len(everyone)
        queues = map(iter, small if self.backfill else everyone)
        heads = [(state.rank, state, queue) for queue in queues for state in (next(queue),)]
        heapify(heads)
        while heads and draft.free:
            _, state, queue = heads[0]
            placement = draft.tightest(state)
            if placement is None:
                if not self.backfill:
                    break
                passed = True
                heappop(heads)
                continue
            code = "backfilled" if passed else "tightest_free"
            draft.start(state, placement, Reason(code, (now - state.since,)))
            following = next(queue, None)
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (following.rank, following, queue))
        return draft.actions(), memory, inf
