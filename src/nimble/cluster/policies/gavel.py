"""Gavel: shares of time that maximise the least throughput (a linear program), in rounds."""

from __future__ import annotations

from collections import Counter
from math import floor, inf
from typing import ClassVar

import numpy as np
from scipy.optimize import linprog

from nimble.cluster.job import Job
from nimble.cluster.policies.offer import Offer, dealt, next_round, offer
from nimble.cluster.policy import Decision, Memory, Reason
from nimble.cluster.state import JobState
from nimble.cluster.view import Draft, View


class Gavel:
    """Knows each model's throughput on each kind of GPU, not how long a job will take.

    Jobs with the same model and demand share their variables, so the program stays small however
    many jobs there are. Every `round_s` the jobs that had the least of their share so far run.
    """

    name = "gavel"
    reasons: ClassVar[dict[str, str]] = {
        "share_due": "had {1:.2f} of its share, which is {2:.2f} of the time; waited {0:.0f} s",
        "share_had": "has had more of its share than the jobs that take over",
    }

    def __init__(self, round_s: float = 360.0) -> None:
        self.round_s = round_s

    def start(self) -> Memory:
        # The classes that the program was solved for, and each one's share of time.
        return {"round": -1, "classes": {}, "shares": {}}

    def rank(self, state: JobState, view: View) -> float:
        return state.job.submit_s

    def decide(self, view: View, memory: Memory, now: float) -> Decision:
        if not view.waiting:
            return (), memory, inf
        draft = view.draft()
        this_round = floor(now / self.round_s)
        if memory["round"] != this_round:
            memory["round"] = this_round
            self._solve(view, memory)
            self._new_round(view, draft, memory["shares"])
        elif view.free:

            def place(state: JobState) -> Offer | None:
                placement = draft.tightest(state)
                return (
                    None
                    if placement is None
                    else (placement, Reason("tightest_free", (now - state.since,)))
                )

            offer(view, draft, place)
        return draft.actions(), memory, next_round(now, self.round_s)

    def _new_round(self, view: View, draft: Draft, shares: dict[str, float]) -> None:
        """All GPUs are given out again, to the jobs that had least of their share."""
        running = list(view.running.values())
        for state in running:
            draft.release(state, Reason("share_had"))

        def due(state: JobState) -> tuple[float, float, bool, int]:
            had = view.run_s(state) / max(view.now - state.job.submit_s, self.round_s)
            # What runs stays, among equals.
            of_share = had / max(shares[class_of(state.job)], 1e-9)
            return -state.job.priority, of_share, state.gpus == 0, state.id

        for state, placement in dealt(draft, sorted((*view.waiting, *running), key=due)):
            numbers = (view.now - state.since, due(state)[1], shares[class_of(state.job)])
            draft.start(state, placement, Reason("share_due", numbers))

    def _solve(self, view: View, memory: Memory) -> None:
        counts = Counter(class_of(state.job) for state in view.jobs.values())
        if counts != memory["classes"]:
            jobs = {class_of(state.job): state.job for state in view.jobs.values()}
            memory["classes"] = dict(counts)
            memory["shares"] = max_min_shares(view, [jobs[c] for c in counts], counts)


def class_of(job: Job) -> str:
    return f"{job.profile.name}/{job.gpus_min}"


def max_min_shares(view: View, jobs: list[Job], counts: Counter[str]) -> dict[str, float]:
    """Each class's share of time: the least normalised throughput is as large as can be.

    Normalised by the job's throughput on an equal part of the cluster, and by its GPUs.

    Variables: the share of time of a job of each class on each kind of GPU, and the least
    throughput. A little of the sum of all shares is maximised too, so that no GPU is left idle.
    """
    machines = view.topology.machines
    kinds = sorted({machine.kind for machine in machines})
    gpus = np.array([sum(m.gpus for m in machines if m.kind == kind) for kind in kinds], float)
    n, k = len(jobs), len(kinds)
    speeds = np.array([[kind_speed(job, kind) for kind in kinds] for job in jobs])
    number = np.array([counts[class_of(job)] for job in jobs], float)
    demand = np.array([job.gpus_min for job in jobs], float)
    cost = np.append(-1e-4 * (number[:, None] * speeds).ravel() / number.sum(), -1.0)
    rows = np.zeros((2 * n + k, n * k + 1))
    limits = np.zeros(2 * n + k)
    for i in range(n):
        mine = slice(i * k, (i + 1) * k)
        rows[i, mine], limits[i] = 1.0, 1.0
        # least <= throughput, relative to having its part of every kind, times its GPUs: a job on
        # one GPU gets as many GPU-seconds as one on eight.
        rows[n + i, mine] = -speeds[i] * demand[i] / (speeds[i] @ gpus / gpus.sum())
        rows[n + i, -1] = 1.0
    for j in range(k):
        rows[2 * n + j, j : n * k : k] = number * demand
        limits[2 * n + j] = gpus[j]
    found = linprog(cost, A_ub=rows, b_ub=limits, bounds=(0, None), method="highs")
    assert found.x is not None, found.message
    shares = found.x[:-1].reshape(n, k).sum(axis=1)
    return {class_of(job): float(min(1.0, share)) for job, share in zip(jobs, shares, strict=True)}


def kind_speed(job: Job, kind: str) -> float:
    return next((relative for name, relative in job.profile.speeds if name == kind), 1.0)


__all__ = ["Gavel", "max_min_shares"]
