"""A scheduling policy of one's own: one class in one file.

nimble cluster simulate --cluster 4x4x8 --jobs 500 --policy examples/own_policy.py:Patient
nimble cluster compare --cluster 4x4x8 --jobs 500 --policies fifo,examples/own_policy.py:Patient
"""

from math import inf

from nimble.cluster import Reason


class Patient:
    """The largest job first. A job waits an hour for the tightest place it can ever get, then takes
    what there is. Nobody is preempted."""

    name = "patient"
    # Words for its own reasons; {0} is the first of the reason's numbers.
    reasons = {
        "tightest": "got the tightest place there is, after {0:.0f} s",
        "patience_over": "waited {0:.0f} s for a tighter place, then took what there was",
    }

    def __init__(self, patience_s=3600.0):
        self.patience_s = patience_s

    def rank(self, state, view):
        """Where a job stands among the waiting: smaller first."""
        return -state.demand

    def decide(self, view, memory, now):
        """Called whenever something happened, and at the time that the last call asked for."""
        draft = view.draft()  # what is tried out here is seen by nobody
        wake_at = inf
        for state in view.waiting:
            over_at = state.since + self.patience_s
            if now < over_at:
                placement = draft.fit(state, view.topology.tightest(state.demand))
                code = "tightest"
            else:
                placement = draft.tightest(state)
                code = "patience_over"
            if placement is not None:
                draft.start(state, placement, Reason(code, (now - state.since,)))
            elif now < over_at:
                wake_at = min(wake_at, over_at)
        return draft.actions(), memory, wake_at
