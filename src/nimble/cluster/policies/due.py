"""Waiting jobs for which a time has come: kept in a policy's memory, so that nobody is scanned."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from nimble.cluster.policy import Memory
from nimble.cluster.state import JobState
from nimble.cluster.view import View


def begin() -> dict[str, Any]:
    """heap: [time, job, since] of waiting jobs; come: waiting jobs whose time has come."""
    return {"heap": [], "come": [], "seen": -1.0}


def update(view: View, memory: Memory, when: Callable[[JobState], float | None]) -> list[JobState]:
    """The jobs that came to be due now, by `when` (asked once each time a job begins to wait).

    memory["come"] keeps all that are due and still wait.
    """
    heap, now = memory["heap"], view.now
    for bucket in view.waiting.buckets():
        for state in bucket.newest():
            if state.since < memory["seen"]:
                break
            at = when(state)
            if at is not None:
                heappush(heap, [at, state.id, state.since])
    memory["seen"] = now
    come = [job for job in memory["come"] if job in view.jobs and not view.jobs[job].gpus]
    known = set(come)
    new = []
    while heap and heap[0][0] <= now:
        _, job, since = heappop(heap)
        found = view.jobs.get(job)
        if found is not None and not found.gpus and found.since == since and job not in known:
            known.add(job)
            new.append(found)
    memory["come"] = come + [state.id for state in new]
    return new


def next_at(memory: Memory) -> float:
    """When the next may come to be due; inf if nobody will."""
    heap = memory["heap"]
    return float(heap[0][0]) if heap else float("inf")
