"""SenseTime's Helios: `cluster_log.csv` of Earth, Saturn, Uranus or Venus."""

from __future__ import annotations

from collections.abc import Sequence

from nimble.cluster.traces.rows import Skipped, number, seconds_of, whole
from nimble.cluster.traces.trace import Entry

COLUMNS = ("job_id", "vc", "gpu_num", "submit_time", "duration")


def parse(row: Sequence[str]) -> Entry:
    """Whatever its final state, a job held its GPUs for `duration` seconds."""
    job, vc, gpus, submitted, duration = row
    count = whole(gpus, "gpu_num")
    seconds = number(duration, "duration")
    if count == 0:
        raise Skipped("it asks for no GPU")
    if seconds == 0:
        raise Skipped("it ran for no time")
    start = seconds_of(submitted, "submit_time")
    return Entry(start, count, seconds, tenant=vc, name=job, row=job)
