"""A-SRPT: the shortest predicted service first, as if the cluster were one machine."""

from __future__ import annotations

from nimble.cluster.policies.srsf import Srsf
from nimble.cluster.policy import Decision, Memory
from nimble.cluster.state import JobState
from nimble.cluster.view import View

KEPT = 64
# Of a job about which nothing is known: the median of the published mixes, roughly.
UNKNOWN_S = 3600.0


class ASrpt(Srsf):
    """Knows how long the jobs that ended took, and predicts the others from those like them.

    A prediction is the median time alone of the last jobs with the same model and demand, else of
    the last jobs with the same demand, else of all. A job that has outlived it is taken to
    be half done.
    """

    name = "a-srpt"

    def start(self) -> Memory:
        return {"took": {}, "median": {}}

    def need(self, state: JobState, view: View) -> float:
        had_s = view.done(state) * state.ideal_s
        predicted_s = predict(view.memory, state)
        return max(predicted_s - had_s, had_s, 1.0) * state.demand

    def decide(self, view: View, memory: Memory, now: float) -> Decision:
        for state in view.ended:
            for key in keys(state):
                took = memory["took"].setdefault(key, [])
                took.append(state.ideal_s)
                del took[:-KEPT]
                memory["median"][key] = sorted(took)[len(took) // 2]
        return super().decide(view, memory, now)


def keys(state: JobState) -> tuple[str, str, str]:
    """What jobs are alike by, the most alike first."""
    return f"{state.job.profile.name}/{state.demand}", f"/{state.demand}", ""


def predict(memory: Memory, state: JobState) -> float:
    """The time that a job will take alone."""
    medians = memory["median"]
    return float(next((medians[key] for key in keys(state) if key in medians), UNKNOWN_S))
