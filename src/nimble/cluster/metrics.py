"""What a run comes to, in numbers: the same for the same inputs, on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np

from nimble.cluster.record import What
from nimble.cluster.result import Column, Result
from nimble.cluster.spans import spans, within


def metrics(result: Result, counted: range | None = None) -> dict[str, Any]:
    """The metrics of a run, ready for `json`; None where nothing finished.

    `counted`: the places of the jobs whose times count (warm-up trimming); all without it.
    Makespan, utilisation and what is said of links and of the queue are always of the whole run.
    Of a run that was stopped, the makespan is None and the rest is of `simulated_s`, the time up
    to there: completion times of the jobs that finished, waits of those that had come.
    """
    jobs = len(result.jobs)
    part = slice(None) if counted is None else slice(counted.start, counted.stop)
    jct = result.jct_s[part]
    ended = np.isfinite(jct)
    jct = jct[ended]
    started = result.run_s[part] > 0
    came = np.isfinite(result.ideal_s[part])
    run_s, comm_s = float(result.run_s[part].sum()), float(result.comm_s[part].sum())
    finished = result.finish_s[np.isfinite(result.finish_s)]
    first = float(result.submit_s.min()) if jobs else 0.0
    end = float(finished.max()) if result.complete and len(finished) else result.end_s
    last = min(end, float(result.submit_s.max())) if jobs else 0.0
    held, _ = spans(result.record)
    columns = result.record.columns()
    what = columns.what[columns.at_s <= end]
    gpus = result.topology.gpus
    ratio = jct / result.ideal_s[part][ended]
    return {
        "policy": result.policy,
        "cluster": result.topology.text or f"{gpus} GPUs",
        "gpus": gpus,
        "jobs": jobs,
        "counted": len(result.submit_s[part]),
        "finished": len(finished),
        **_unfinished(result, len(finished)),
        "complete": result.complete,
        "simulated_s": max(0.0, end - first),
        "makespan_s": end - first if result.complete else None,
        "mean_jct_s": _mean(jct),
        "median_jct_s": _percentile(jct, 50),
        "p95_jct_s": _percentile(jct, 95),
        "p99_jct_s": _percentile(jct, 99),
        "queueing_s": _mean(result.waited_s[part][came]),
        "first_wait_s": _mean((result.first_start_s - result.submit_s)[part][started]),
        "comm_share": comm_s / run_s if run_s else 0.0,
        "comm_s": comm_s,
        "compute_s": float(result.compute_s[part].sum()),
        "overhead_s": float(result.overhead_s[part].sum()),
        # GPUs held over GPUs there are: until the last job has ended, and while jobs came.
        "utilisation": _share(within(held, first, end), gpus * (end - first)),
        "utilisation_submissions": _share(within(held, first, last), gpus * (last - first)),
        "placements": dict(
            zip((tier.name for tier in result.topology.tiers), result.placements, strict=True)
        ),
        "preemptions": int(result.preemptions.sum()),
        # Times that a machine went down, and that a job lost one and went back to a checkpoint.
        "machine_failures": int(np.sum(what == What.DOWN)),
        "failures": int(np.sum(what == What.FAIL)),
        "peak_queue": result.peak_queue,
        "shared_link_s": result.shared_link_s,
        "contended_s": result.contended_s,
        "max_finish_ratio": float(ratio.max()) if len(ratio) else None,
        "p95_finish_ratio": _percentile(ratio, 95),
        "jain_tenants": _by_tenant(result, part, ended, ratio),
        "events": result.events,
        "decisions": result.decisions,
    }


def _unfinished(result: Result, finished: int) -> dict[str, int]:
    """How many ran, waited and had not come when the run ended; none if it is complete."""
    came = int(np.isfinite(result.ideal_s).sum())
    columns = result.record.columns()
    _, last = np.unique(columns.job[::-1], return_index=True)
    running = int(np.isin(columns.what[::-1][last], _HOLDING).sum())
    return {
        "running": running,
        "waiting": came - finished - running,
        "to_come": len(result.jobs) - came,
    }


_HOLDING = (What.START, What.MOVE, What.RESIZE)


def jain(values: Sequence[float]) -> float:
    """Jain's index: 1 when all are equal, 1/n when one has everything.

    >>> jain([1.0, 1.0]), jain([1.0, 0.0])
    (1.0, 0.5)
    """
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def _by_tenant(result: Result, part: slice, ended: Any, ratio: Column) -> float | None:
    """Jain's index of the tenants' mean speed: what a job would have taken alone over its JCT."""
    if not len(ratio):
        return None
    speeds: dict[str, list[float]] = {}
    those = (job for job, done in zip(result.jobs[part], ended.tolist(), strict=True) if done)
    for job, slow in zip(those, ratio.tolist(), strict=True):
        speeds.setdefault(job.tenant, []).append(1 / slow)
    return jain([sum(own) / len(own) for own in speeds.values()])


def _mean(values: Column) -> float | None:
    return float(values.mean()) if len(values) else None


def _percentile(values: Column, percent: float) -> float | None:
    return float(np.percentile(values, percent)) if len(values) else None


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 and isfinite(whole) else 0.0
