"""When jobs come: made up, sped up, scaled to a load; and which of them count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nimble.cluster.jobs import Jobs
from nimble.cluster.mixes import HOURLY
from nimble.cluster.work import SoloIteration, solo_by_job
from nimble.errors import InputError

_DAY = 86400.0


def arrive(jobs: Jobs, how: str, jobs_per_day: float, rng: np.random.Generator) -> Jobs:
    """The same jobs, coming at random: `poisson` at one rate, `diurnal` at one that changes with
    the hour as it did in Philly."""
    if not jobs_per_day > 0:
        raise InputError(f"{jobs_per_day} jobs a day; expected more than 0")
    if how not in ("poisson", "diurnal"):
        raise InputError(f"arrivals {how!r}: expected batch, poisson or diurnal")
    # In days of the mean rate; the first job comes at 0.
    gaps = rng.exponential(1 / jobs_per_day, len(jobs))
    gaps[:1] = 0
    clock = np.cumsum(gaps)
    if how == "diurnal":
        passed = np.concatenate([[0.0], np.cumsum(HOURLY) / sum(HOURLY)])
        days = np.floor(clock)
        clock = days + np.interp(clock - days, passed, np.arange(25) / 24)
    return replace(jobs, submit_s=clock * _DAY)


def speed_up(jobs: Jobs, times: float) -> Jobs:
    """The same jobs, coming so many times as fast."""
    if not times > 0:
        raise InputError(f"speedup {times}: expected a number above 0")
    return replace(jobs, submit_s=jobs.submit_s / times)


def offered_load(jobs: Jobs, cluster_gpus: int, solo_iteration_s: SoloIteration) -> float:
    """GPU-seconds of work that come per GPU-second of the cluster, each job at its tightest
    placement, alone."""
    if len(jobs) < 2 or jobs.submit_s[-1] <= jobs.submit_s[0]:
        raise InputError(f"{len(jobs)} jobs that all come at once offer no load; see --arrivals")
    solo = solo_by_job(jobs.profiles, jobs.model, jobs.gpus_max, solo_iteration_s)
    work = float(np.dot(jobs.gpus_max, jobs.iterations * solo))
    span = float(jobs.submit_s[-1] - jobs.submit_s[0]) * len(jobs) / (len(jobs) - 1)
    return work / (span * cluster_gpus)


def to_load(jobs: Jobs, load: float, cluster_gpus: int, solo_iteration_s: SoloIteration) -> Jobs:
    """The same jobs, coming so fast that they offer this load."""
    if not load > 0:
        raise InputError(f"load {load}: expected a number above 0")
    return speed_up(jobs, load / offered_load(jobs, cluster_gpus, solo_iteration_s))


def measured(jobs: Jobs, warm_up: float = 0.0, cool_down: float = 0.0) -> range:
    """The ids of the jobs that count: those submitted neither in the first share `warm_up` of the
    time of all submissions nor in the last share `cool_down`. All jobs are run."""
    if not (warm_up >= 0 and cool_down >= 0 and warm_up + cool_down < 1):
        raise InputError(f"warm-up {warm_up} and cool-down {cool_down}: expected shares below 1")
    first, last = float(jobs.submit_s[0]), float(jobs.submit_s[-1])
    span = last - first
    start = np.searchsorted(jobs.submit_s, first + warm_up * span, side="left")
    stop = np.searchsorted(jobs.submit_s, last - cool_down * span, side="right")
    return range(int(start), int(stop))
