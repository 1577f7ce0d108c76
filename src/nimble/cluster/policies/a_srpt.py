"""A-SRPT: jobs start in the order in which one imagined machine, as fast as all, would end them."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import ClassVar

from nimble.cluster.policies.offer import dealt
from nimble.cluster.policy import Decision, Memory, Reason
from nimble.cluster.state import JobState
from nimble.cluster.view import View

KEPT = 64
# Of a job about which nothing is known: the median of the published mixes, roughly.
UNKNOWN_S = 3600.0


class ASrpt:
    """Knows how long the jobs that ended took, and predicts the others from those like them.

    A prediction is the median time alone of the last jobs with the same model and demand, else of
    the last jobs with the same demand, else of all. The imagined machine serves the job with the
    least predicted work left, and changes over at no cost. First in line is whom it has ended, as
    it did, then whom it would end next. They take the tightest GPUs that are free and keep them.
    """

    name = "a-srpt"
    reasons: ClassVar[dict[str, str]] = {
        "guided": "stood first by predicted work of those that fit, after {0:.0f} s",
    }

    def start(self) -> Memory:
        # imagined: [-priority, seconds left there, job], up to `at`.
        # ended: waiting jobs in the order in which it has ended them.
        return {"took": {}, "median": {}, "imagined": [], "at": 0.0, "ended": [], "seen": -1.0}

    def rank(self, state: JobState, view: View) -> float:
        return state.job.submit_s

    def decide(self, view: View, memory: Memory, now: float) -> Decision:
        self._learn(view, memory)
        serve(memory, now)
        self._admit(view, memory)
        if not view.waiting or not view.free:
            return (), memory, inf
        draft = view.draft()
        order = dict.fromkeys((*memory["ended"], *(job for *_, job in sorted(memory["imagined"]))))
        queue = [view.jobs[job] for job in order if job in view.jobs and not view.jobs[job].gpus]
        queue.sort(key=lambda state: -state.job.priority)  # which leaves equals in order
        for state, placement in dealt(draft, queue):
            draft.start(state, placement, Reason("guided", (now - state.since,)))
        wait = {state.id for state in queue} - draft.taken
        memory["ended"] = [job for job in memory["ended"] if job in wait]
        return draft.actions(), memory, inf

    def _learn(self, view: View, memory: Memory) -> None:
        for state in view.ended:
            for key in keys(state):
                took = memory["took"].setdefault(key, [])
                took.append(state.ideal_s)
                del took[:-KEPT]
                memory["median"][key] = sorted(took)[len(took) // 2]
        over = {state.id for state in view.ended}
        if any(job in over for *_, job in memory["imagined"]):
            memory["imagined"] = [entry for entry in memory["imagined"] if entry[-1] not in over]
            heapify(memory["imagined"])

    def _admit(self, view: View, memory: Memory) -> None:
        """Jobs that came since the last decision; who has lost its GPUs waits before all others."""
        for bucket in view.waiting.buckets():
            for state in bucket.newest():
                if state.since <= memory["seen"]:
                    break
                if state.first_start_s >= 0:
                    memory["ended"].insert(0, state.id)
                else:
                    work_s = predict(memory, state) * state.demand / view.topology.gpus
                    heappush(memory["imagined"], [-state.job.priority, work_s, state.id])
        memory["seen"] = view.now


def serve(memory: Memory, now: float) -> None:
    """The imagined machine goes on until `now`: the least left first."""
    imagined, for_s = memory["imagined"], now - memory["at"]
    memory["at"] = now
    while imagined and imagined[0][1] <= for_s:
        _, left_s, job = heappop(imagined)
        for_s -= left_s
        memory["ended"].append(job)
    if imagined:
        imagined[0][1] -= for_s


def keys(state: JobState) -> tuple[str, str, str]:
    """What jobs are alike by, the most alike first."""
    return f"{state.job.profile.name}/{state.demand}", f"/{state.demand}", ""


def predict(memory: Memory, state: JobState) -> float:
    """The time that a job will take alone."""
    medians = memory["median"]
    return float(next((medians[key] for key in keys(state) if key in medians), UNKNOWN_S))
