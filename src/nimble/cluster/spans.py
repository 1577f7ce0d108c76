"""Who held how many GPUs from when to when, and who waited: the record in arrays, for all jobs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nimble.cluster.record import Record, What

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Spans(NamedTuple):
    """One entry for each time that a job held the same GPUs (or waited), in order of its start."""

    row: Ints  # of the record, where it began
    job: Ints
    start_s: Floats
    end_s: Floats
    gpus: Ints  # held; 0 where it waited


def spans(record: Record) -> tuple[Spans, Spans]:
    """Those with GPUs, and those without."""
    columns = record.columns()
    if not len(record):
        none, never = np.zeros(0, np.int64), np.zeros(0)
        nothing = Spans(none, none, never, never, none)
        return nothing, nothing
    rows = np.flatnonzero(columns.job >= 0)
    # A job's rows one after the other, in their order: each lasts until the next.
    rows = rows[np.argsort(columns.job[rows], kind="stable")]
    job, at, what = columns.job[rows], columns.at_s[rows], columns.what[rows]
    end = np.append(at[1:], record.end_s)
    end[np.append(job[1:] != job[:-1], True)] = record.end_s
    totals = np.concatenate([[0], np.cumsum(columns.gpus, dtype=np.int64)])
    ends = columns.ends
    held = totals[ends] - totals[np.concatenate([[0], ends[:-1]])]
    gpus = held[rows]
    with_gpus = gpus > 0
    waits = ~with_gpus & (what != What.FINISH)

    def chosen(which: NDArray[np.bool_]) -> Spans:
        order = np.flatnonzero(which)[np.argsort(rows[which])]
        return Spans(rows[order], job[order], at[order], end[order], gpus[order])

    return chosen(with_gpus), chosen(waits)


def within(some: Spans, low_s: float, high_s: float) -> float:
    """GPU-seconds held from `low_s` to `high_s`."""
    seconds = np.minimum(some.end_s, high_s) - np.maximum(some.start_s, low_s)
    return float(np.dot(np.maximum(seconds, 0.0), some.gpus))


def averaged(start_s: Floats, end_s: Floats, amount: Floats, edges: Floats) -> Floats:
    """The mean of a sum of amounts, each there from its start to its end, between the edges."""
    if not len(start_s):
        return np.zeros(len(edges) - 1)
    times = np.concatenate([start_s, end_s])
    order = np.argsort(times, kind="stable")
    times = times[order]
    level = np.cumsum(np.concatenate([amount, -amount])[order])
    total = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))])
    # Before the first and after the last there is nothing: `interp` holds its ends.
    passed = np.interp(edges, times, total)
    mean: Floats = np.diff(passed) / np.diff(edges)
    return mean
