"""Microsoft's Philly: the cleaned CSV, and the original `cluster_job_log` in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nimble.cluster.traces.rows import Skipped, above_zero, seconds_of, whole
from nimble.cluster.traces.trace import Entry
from nimble.errors import InputError

COLUMNS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
"""Submission, seconds, GPUs, GPU-seconds, virtual cluster."""


def parse(row: Sequence[str]) -> Entry:
    submitted, duration, gpus, gpu_time, cluster = row
    count = whole(gpus, "num_gpus", 1)
    seconds = above_zero(duration, "duration")
    total = above_zero(gpu_time, "gpu_time")
    if abs(total - count * seconds) > 1e-6 * total + 1:
        raise ValueError(f"gpu_time is {gpu_time}, and {gpus} GPUs x {duration} s is another")
    return Entry(
        seconds_of(submitted, "timestamp"),
        count,
        seconds,
        tenant=cluster,
        row=f"{submitted},{duration},{gpus},{cluster}",
    )


def log_rows(text: str, path: Path) -> Iterator[tuple[int, Any]]:
    """The jobs of a `cluster_job_log`, numbered from 1."""
    try:
        jobs = json.loads(text)
    except ValueError as error:
        raise InputError(f"{path}: looks like JSON, but is not: {error}") from error
    if not isinstance(jobs, list):
        raise InputError(f"{path}: expected the list of jobs of a Philly cluster_job_log")
    return enumerate(jobs, 1)


def parse_log(job: Any) -> Entry:
    """Seconds are those of all attempts together; GPUs those of the last one."""
    try:
        vc, name, attempts = str(job["vc"]), str(job["jobid"]), job["attempts"]
        if not attempts:
            raise Skipped("it was never scheduled")
        start, seconds = job["submitted_time"], 0.0
        for attempt in attempts:
            began, ended = attempt["start_time"], attempt["end_time"]
            if began in (None, "None") or ended in (None, "None"):
                raise Skipped("an attempt has no recorded start or end")
            seconds += seconds_of(ended, "end_time") - seconds_of(began, "start_time")
        gpus = sum(len(machine["gpus"]) for machine in attempts[-1]["detail"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a job of a cluster_job_log: {error!r}") from error
    if gpus == 0:
        raise Skipped("it used no GPU")
    if seconds <= 0:
        raise Skipped("it ran for no time")
    return Entry(seconds_of(start, "submitted_time"), gpus, seconds, tenant=vc, name=name, row=name)
