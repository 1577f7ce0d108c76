"""What a page is told of one run: its numbers, its curves, its links, its jobs and their rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log10
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nimble.cluster.network import Collective
from nimble.cluster.page.links import Loads, loads
from nimble.cluster.page.pack import Packed, rounded, smallest
from nimble.cluster.policy import REASONS
from nimble.cluster.record import What
from nimble.cluster.result import Result
from nimble.cluster.spans import Spans, averaged, spans

BINS = 720
LINK_BINS = 360


class Run(NamedTuple):
    """One run to be shown."""

    label: str
    result: Result
    metrics: dict[str, Any]
    collective: Collective = Collective.RING
    # Words for the policy's own reasons.
    reasons: dict[str, str] = {}  # noqa: RUF012  (never written)
    # What stopped it, if something did.
    error: str = ""


def contents(run: Run, packed: Packed, every: int) -> dict[str, Any]:
    """Ready for `json`; arrays go into `packed`. Of the jobs, each `every`-th is listed."""
    result = run.result
    held, waits = spans(result.record)
    # Machines may still fail when the last job has ended: nobody wants to look at that.
    last = np.nanmax(result.finish_s) if result.complete and len(result.jobs) else result.end_s
    end = max(float(last), 1e-9)
    # Whole ticks: enough of them that no one sees one, few enough that they deflate well.
    tick = 10.0 ** ceil(log10(end / 2**28))
    found = loads(result, held, run.collective, np.linspace(0.0, end, LINK_BINS + 1))
    listed = np.arange(0, len(result.jobs), every)
    return {
        "label": run.label,
        "error": run.error,
        "metrics": run.metrics,
        "end": end,
        "tick": tick,
        "every": every,
        "codes": result.record.codes,
        "words": {
            code: run.reasons.get(code, REASONS.get(code, code)) for code in result.record.codes
        },
        "topology": _topology(result, packed),
        "cdf": _quantiles(result),
        "curves": _curves(result, held, waits, np.linspace(0.0, end, BINS + 1), packed),
        "links": _links(result, found, packed),
        "jobs": _jobs(result, listed, packed),
        "rows": _rows(result, listed, found.pace, held, tick, packed),
        "outages": _outages(result, end),
    }


def _topology(result: Result, packed: Packed) -> dict[str, Any]:
    topology = result.topology
    count = len(topology.machines)
    return {
        "text": topology.text,
        "tiers": [tier.name for tier in topology.tiers],
        "gpus": packed.add(smallest(np.array([m.gpus for m in topology.machines]))),
        "parent": packed.add(np.array(topology.parent, np.int32)),
        # "machine7" for machine 7 goes without saying.
        "names": []
        if all(topology.names[i] == f"machine{i}" for i in range(count))
        else list(topology.names[:count]),
        "domains": list(topology.names[count:]),
    }


def _quantiles(result: Result) -> list[float]:
    """The JCT at 0, 1/400, ... 1."""
    jct = result.jct_s[np.isfinite(result.jct_s)]
    if not len(jct):
        return []
    return [float(f"{x:.5g}") for x in np.quantile(jct, np.linspace(0, 1, 401))]


def _curves(
    result: Result, held: Spans, waits: Spans, edges: NDArray[np.float64], packed: Packed
) -> dict[str, Any]:
    ids, demand = _by_id(result, [job.gpus_min for job in result.jobs])
    wanted = demand[np.searchsorted(ids, waits.job)].astype(float)
    busy = averaged(held.start_s, held.end_s, held.gpus.astype(float), edges)
    ones = np.ones(len(waits.row))
    return {
        "busy": packed.add(rounded(busy / result.topology.gpus)),
        "queue": packed.add(rounded(averaged(waits.start_s, waits.end_s, ones, edges))),
        "wanted": packed.add(rounded(averaged(waits.start_s, waits.end_s, wanted, edges))),
    }


def _links(result: Result, found: Loads, packed: Packed) -> dict[str, Any]:
    topology = result.topology
    percent = np.clip(np.rint(found.load * 200), 0, 255).astype(np.uint8)
    return {
        "names": [topology.names[link] for link in found.link],
        "above": [topology.names[topology.parent[link]] for link in found.link],
        "tier": [topology.level[link] for link in found.link],
        "capacity": [topology.capacity[link] for link in found.link],
        "left_out": found.left_out,
        "bins": LINK_BINS,
        "load": packed.add(percent.ravel()),
    }


def _jobs(result: Result, listed: NDArray[np.int64], packed: Packed) -> dict[str, Any]:
    jobs = [result.jobs[place] for place in listed.tolist()]
    models = sorted({job.profile.name for job in jobs})
    tenants = sorted({job.tenant for job in jobs})
    model_of = {name: place for place, name in enumerate(models)}
    tenant_of = {name: place for place, name in enumerate(tenants)}
    plain = all(job.name == f"job{job.id}" for job in jobs)
    return {
        "id": packed.add(smallest(np.array([job.id for job in jobs], np.int64))),
        "names": [] if plain else [job.name for job in jobs],
        "gpus": packed.add(smallest(np.array([job.gpus_max for job in jobs], np.int64))),
        "model": packed.add(smallest(np.array([model_of[j.profile.name] for j in jobs], int))),
        "tenant": packed.add(smallest(np.array([tenant_of[j.tenant] for j in jobs], int))),
        "models": models,
        "tenants": tenants,
        "ideal": packed.add(rounded(result.ideal_s[listed])),
        "comm": packed.add(rounded(result.comm_s[listed])),
    }


def _rows(
    result: Result,
    listed: NDArray[np.int64],
    pace: NDArray[np.float64],
    held: Spans,
    tick: float,
    packed: Packed,
) -> dict[str, Any]:
    """The listed jobs' rows, one job after the other: their times then repeat, and deflate."""
    columns = result.record.columns()
    ids = np.array([result.jobs[place].id for place in listed.tolist()], np.int64)
    order = np.argsort(ids)
    rows = np.flatnonzero(np.isin(columns.job, ids))
    place = order[np.searchsorted(ids[order], columns.job[rows])] if len(ids) else rows
    by_job = np.argsort(place, kind="stable")
    rows, place = rows[by_job], place[by_job]
    at = np.rint(columns.at_s[rows] / tick).astype(np.int64)
    first = np.append(True, place[1:] != place[:-1]) if len(rows) else np.zeros(0, bool)
    since = np.diff(at, prepend=0)
    since[first] = at[first]
    begins = np.concatenate([[0], columns.ends[:-1]])
    machines = (columns.ends - begins)[rows]
    within = np.arange(int(machines.sum())) - np.repeat(np.cumsum(machines) - machines, machines)
    parts = np.repeat(begins[rows], machines) + within
    speed = np.zeros(len(columns.at_s))
    speed[held.row] = pace
    return {
        "count": packed.add(smallest(np.bincount(place, minlength=len(ids)))),
        "since": packed.add(smallest(since)),
        "what": packed.add(columns.what[rows].astype(np.uint8)),
        "code": packed.add(smallest(columns.reason[rows])),
        "numbers": [packed.add(rounded(columns.numbers[rows, n])) for n in range(3)],
        "pace": packed.add(np.clip(np.rint(speed[rows] * 200), 0, 255).astype(np.uint8)),
        "parts": packed.add(smallest(machines)),
        "machine": packed.add(smallest(columns.machines[parts])),
        "gpus": packed.add(smallest(columns.gpus[parts])),
    }


def _outages(result: Result, end: float) -> list[tuple[int, float, float]]:
    """Machine, from, until."""
    columns = result.record.columns()
    down: dict[int, float] = {}
    found = []
    for row in np.flatnonzero(columns.job < 0).tolist():
        machine, at = int(columns.numbers[row, 0]), float(columns.at_s[row])
        if columns.what[row] == What.DOWN:
            down[machine] = at
        elif machine in down:
            found.append((machine, down.pop(machine), at))
    found += [(machine, at, end) for machine, at in down.items()]
    return [(machine, at, min(until, end)) for machine, at, until in found if at < end]


def _by_id(result: Result, values: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    ids = np.array([job.id for job in result.jobs], np.int64)
    order = np.argsort(ids)
    return ids[order], np.array(values, np.int64)[order]
