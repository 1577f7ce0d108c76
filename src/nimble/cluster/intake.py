"""Which jobs are taken in, and in which order they come."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import isfinite

import numpy as np

from nimble.cluster.job import Job
from nimble.cluster.jobs import Jobs
from nimble.cluster.topology import Topology
from nimble.errors import InputError


def check_jobs(topology: Topology, jobs: Sequence[Job]) -> array[float]:
    """When each is submitted. InputError if two share an id, or one can never run."""
    if isinstance(jobs, Jobs) and _sound(topology, jobs):
        return array("d", jobs.submit_s.tobytes())
    ids: set[int] = set()
    submitted = array("d")
    for job in jobs:
        submitted.append(job.submit_s)
        ids.add(job.id)
        if (
            1 <= job.gpus_min <= job.gpus_max
            and job.gpus_min <= topology.gpus
            and job.iterations >= 1
            and job.profile.compute_s > 0
            and isfinite(job.submit_s)
            and job.id >= 0
            and len(ids) == len(submitted)
        ):
            continue
        what = f"job {job.id} ({job.name})"
        if job.id < 0 or len(ids) < len(submitted):
            raise InputError(f"{what}: ids are distinct and not negative")
        if job.gpus_min > topology.gpus:
            raise InputError(
                f"{what} wants {job.gpus_min} GPUs; the cluster has {topology.gpus}. "
                "Leave it out, or take a larger cluster"
            )
        if not 1 <= job.gpus_min <= job.gpus_max:
            raise InputError(f"{what} wants {job.gpus_min} to {job.gpus_max} GPUs")
        raise InputError(f"{what} has no work, or no time of submission")
    return submitted


def _sound(topology: Topology, jobs: Jobs) -> bool:
    """The same of all jobs at once; the first that is at fault is then found one by one."""
    return not len(jobs) or bool(
        jobs.gpus_min.min() >= 1
        and jobs.gpus_min.max() <= topology.gpus
        and np.all(jobs.gpus_min <= jobs.gpus_max)
        and jobs.iterations.min() >= 1
        and np.all(np.isfinite(jobs.submit_s))
        and all(profile.compute_s > 0 for profile in jobs.profiles)
    )


def in_order(jobs: Sequence[Job], submitted: Sequence[float]) -> Iterator[tuple[int, Job]]:
    """(place, job) by submission, then place. Jobs in order already are read one at a time."""
    if isinstance(jobs, Jobs) or all(before <= after for before, after in pairwise(submitted)):
        return enumerate(jobs)
    order = sorted(range(len(submitted)), key=submitted.__getitem__)
    return ((place, jobs[place]) for place in order)
