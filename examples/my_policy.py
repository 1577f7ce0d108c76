"""A policy of one's own: the smallest job first, as close together as can be, nobody preempted.

nimble cluster simulate --cluster 4x4x8 --policy examples/my_policy.py:SmallestFirst
"""

from __future__ import annotations

from math import inf
from typing import ClassVar

from nimble.cluster import Reason
from nimble.cluster.policies.offer import offer


class SmallestFirst:
    name = "smallest-first"
    reasons: ClassVar = {"small": "had the smallest demand, {0:.0f} GPUs, after {1:.0f} s"}

    def rank(self, state, view):
        """Who is asked first, among the waiting: the least."""
        return state.demand, state.job.submit_s

    def decide(self, view, memory, now):
        draft = view.draft()

        def place(state):
            placement = draft.tightest(state)
            if placement is None:
                return None
            return placement, Reason("small", (state.demand, now - state.since))

        offer(view, draft, place)
        return draft.actions(), memory, inf
