"""How full each link was over time, and how fast each placement ran for it."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nimble.cluster.network import Collective, Cost, cost
from nimble.cluster.record import Record
from nimble.cluster.result import Result
from nimble.cluster.spans import Floats, Spans, averaged


class Loads(NamedTuple):
    link: list[int]  # the busiest, in the order of their numbers
    load: Floats  # a row a link: the mean share of its capacity in use, bin by bin
    left_out: int  # links that were used, but less than these
    # Of every span with GPUs: its mean speed relative to having its links to itself.
    pace: Floats


def loads(
    result: Result, held: Spans, collective: Collective, edges: Floats, most: int = 300
) -> Loads:
    """From the recorded rates (Options.record_rates); without them every job counts as alone."""
    topology, columns = result.topology, result.record.columns()
    by_id = {job.id: job for job in result.jobs}
    changes = _changes(result.record)
    costs: dict[tuple[int, tuple[tuple[int, int], ...]], Cost] = {}
    pieces: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    pace = np.ones(len(held.row))
    begins = np.concatenate([[0], columns.ends[:-1]])
    machines_in = columns.ends[held.row] - begins[held.row]
    first = set(np.unique(held.job, return_index=True)[1].tolist())
    for span in np.flatnonzero(machines_in > 1).tolist():
        row = int(held.row[span])
        job = by_id[int(held.job[span])]
        part = slice(begins[row], columns.ends[row])
        machines, gpus = columns.machines[part].tolist(), columns.gpus[part].tolist()
        placement = tuple(zip(machines, gpus, strict=True))
        key = (id(job.profile), placement)
        if key not in costs:
            costs[key] = cost(topology, job.profile, placement, collective)
        alone = costs[key]
        start, end = float(held.start_s[span]), float(held.end_s[span])
        if span not in first:  # It reads its checkpoint first, and sends nothing.
            start += job.checkpoint_s + job.restart_s
        if not alone.traffic or end <= start:
            continue
        rate = job.profile.bytes / alone.iteration_s
        moved = 0.0
        for low, high, share in _shares(changes.get(job.id), start, end):
            moved += share * (high - low)
            for link, weight in alone.traffic:
                pieces[link].append((low, high, weight * rate * share))
        pace[span] = moved / (end - start)
    totals = {link: sum((h - low) * x for low, h, x in own) for link, own in pieces.items()}
    busiest = sorted(totals, key=lambda link: (-totals[link] / topology.capacity[link], link))
    chosen = sorted(busiest[:most])
    load = np.zeros((len(chosen), len(edges) - 1))
    for place, link in enumerate(chosen):
        low, high, amount = np.array(pieces[link]).T
        load[place] = averaged(low, high, amount, edges) / topology.capacity[link]
    return Loads(chosen, load, len(totals) - len(chosen), pace)


def _changes(record: Record) -> dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Of each job that contention touched: when its share changed, and to what."""
    if not len(record.rate_job):
        return {}
    job = np.frombuffer(record.rate_job, np.int64)
    order = np.argsort(job, kind="stable")
    at = np.frombuffer(record.rate_at, np.float64)[order]
    share = np.frombuffer(record.rate_share, np.float64)[order]
    ids, starts = np.unique(job[order], return_index=True)
    stops = [*starts[1:].tolist(), len(job)]
    return {
        i: (at[low:high], share[low:high])
        for i, low, high in zip(ids.tolist(), starts.tolist(), stops, strict=True)
    }


def _shares(
    changes: tuple[NDArray[np.float64], NDArray[np.float64]] | None, start: float, end: float
) -> list[tuple[float, float, float]]:
    """From, until and share, over one span: 1 from its start until a change says otherwise."""
    if changes is None:
        return [(start, end, 1.0)]
    at, share = changes
    low, high = np.searchsorted(at, start, "left"), np.searchsorted(at, end, "left")
    times = [start, *at[low:high].tolist(), end]
    levels = [1.0, *share[low:high].tolist()]
    return [
        (a, b, level) for a, b, level in zip(times[:-1], times[1:], levels, strict=True) if b > a
    ]
