"""Alibaba's PAI (cluster-trace-gpu-v2020): `pai_task_table.csv`, which comes without a header.

A job is all tasks of one `job_name` that ask for GPUs. A task asks for `inst_num` times `plan_gpu`
per cent of a GPU; a job gets the sum, rounded up. Submission times are not in it: a job
counts as submitted when its first task starts, and lasts until its last one ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from nimble.cluster.traces.rows import Skipped, number, whole
from nimble.cluster.traces.trace import Entry

COLUMNS = ("job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu",
           "plan_mem", "plan_gpu", "gpu_type")  # fmt: skip
_STATES = ("Running", "Terminated", "Failed", "Waiting")


def known_by(first: Sequence[str]) -> bool:
    return len(first) == len(COLUMNS) and first[3] in _STATES


def parse(row: Sequence[str]) -> Entry:
    """A task. `iterations` holds its GPUs in per cent, until `merge`."""
    if len(row) != len(COLUMNS):
        raise ValueError(f"it has {len(row)} columns; expected {len(COLUMNS)}")
    job, _, instances, status, started, ended, _, _, plan_gpu, _ = row
    if status not in _STATES:
        raise ValueError(f"status is {status!r}; expected one of {', '.join(_STATES)}")
    if not started or not ended:
        raise Skipped("it has not started or not ended")
    percent = number(plan_gpu, "plan_gpu") if plan_gpu else 0.0
    share = whole(instances or "1", "inst_num", 1) * percent
    start, end = number(started, "start_time"), number(ended, "end_time")
    if end < start:
        raise ValueError(f"end_time {ended} is before start_time {started}")
    if share == 0:
        raise Skipped("a task that asks for no GPU")
    if end == start:
        raise Skipped("it ran for no time")
    return Entry(start, 1, end - start, iterations=math.ceil(share), name=job)


def merge(tasks: Iterable[Entry]) -> list[Entry]:
    """One entry a job."""
    jobs: dict[str, tuple[float, float, int]] = {}
    for task in tasks:
        end = task.submit_s + task.duration_s
        begin, last, percent = jobs.get(task.name, (task.submit_s, end, 0))
        begin, last = min(begin, task.submit_s), max(last, end)
        jobs[task.name] = (begin, last, percent + task.iterations)
    return [
        Entry(begin, -(-percent // 100), last - begin, name=name, row=name)
        for name, (begin, last, percent) in jobs.items()
    ]
