"""Gavel's traces: tabs between fields, no header; the older files have 7 fields, the newer 10."""

from __future__ import annotations

from collections.abc import Sequence

from nimble.cluster.traces.rows import number, whole
from nimble.cluster.traces.trace import Entry

_NEW, _OLD = 10, 7
EXPECTED = (
    "10 fields between tabs: job type, command, working directory, steps argument, needs data, "
    "steps, GPUs, priority weight, SLO, arrival; or 7: job type, command, steps argument, needs "
    "data, steps, arrival, GPUs"
)


def known_by(first: Sequence[str]) -> bool:
    return len(first) in (_OLD, _NEW)


def parse(row: Sequence[str]) -> Entry:
    """A step is one batch of one GPU: an iteration of n GPUs does n of them. A weight of 1 is
    priority 0."""
    weight = 1.0
    if len(row) == _NEW:
        kind, _, _, _, _, steps, gpus, priority, _, arrival = row
        weight = number(priority, "the priority weight")
    elif len(row) == _OLD:
        kind, _, _, _, steps, arrival, gpus = row
    else:
        raise ValueError(f"it has {len(row)} fields; expected {EXPECTED}")
    if not kind:
        raise ValueError("it has no job type")
    count = whole(gpus, "the number of GPUs", 1)
    return Entry(
        number(arrival, "the arrival"),
        count,
        iterations=-(-whole(steps, "the number of steps", 1) // count),
        model=kind,
        priority=round(weight) - 1,
    )
