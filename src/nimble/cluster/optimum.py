"""The least mean completion time of tiny cases, by exhaustive search, and how far policies are off.

Jobs are rigid gangs on GPUs that are all alike, with whole numbers of units of time; preemption is
free and happens between units. Searched: every maximal set of jobs that fits, in every unit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from statistics import median

import numpy as np

from nimble.cluster.job import Job
from nimble.cluster.policy import Policy
from nimble.cluster.profile import Profile
from nimble.cluster.result import Options
from nimble.cluster.simulator import simulate
from nimble.cluster.topology import grid
from nimble.errors import InputError

UNIT_S = 600
MOST_JOBS, MOST_GPUS = 6, 8
# One iteration is one unit, and nothing is communicated worth speaking of.
UNIT = Profile("unit", float(UNIT_S), (1,))


@dataclass(frozen=True, slots=True)
class Case:
    """Jobs as (units until it is submitted, GPUs, units it takes)."""

    gpus: int
    jobs: tuple[tuple[int, int, int], ...]


def least_mean_s(case: Case) -> float:
    """The least mean time from submission to end."""
    if len(case.jobs) > MOST_JOBS or case.gpus > MOST_GPUS:
        raise InputError(
            f"{len(case.jobs)} jobs on {case.gpus} GPUs: the search takes at most {MOST_JOBS} jobs "
            f"and {MOST_GPUS} GPUs"
        )
    last = max(submit for submit, _, _ in case.jobs)

    @cache
    def waiting_units(at: int, left: tuple[int, ...]) -> int:
        """Units that jobs will spend in the cluster from `at` on."""
        if not any(left):
            return 0
        here = [i for i, units in enumerate(left) if units and case.jobs[i][0] <= at]
        later = min(at + 1, last)  # after the last arrival the time makes no difference
        if not here:
            return waiting_units(later, left)
        return len(here) + min(
            waiting_units(later, tuple(u - (i in run) for i, u in enumerate(left)))
            for run in maximal(here, case)
        )

    total = waiting_units(0, tuple(units for _, _, units in case.jobs))
    return total * UNIT_S / len(case.jobs)


def maximal(here: Sequence[int], case: Case) -> list[frozenset[int]]:
    """Sets of jobs that fit together, to which no other can be added."""
    found: list[frozenset[int]] = []
    for size in range(len(here), 0, -1):
        for run in map(frozenset, combinations(here, size)):
            if sum(case.jobs[i][1] for i in run) <= case.gpus and not any(
                run < more for more in found
            ):
                found.append(run)
    return found


def random_case(rng: np.random.Generator) -> Case:
    gpus = int(rng.integers(1, MOST_GPUS + 1))
    jobs = tuple(
        (int(rng.integers(0, 5)), int(rng.integers(1, gpus + 1)), int(rng.integers(1, 6)))
        for _ in range(int(rng.integers(2, MOST_JOBS + 1)))
    )
    return Case(gpus, jobs)


def mean_s(case: Case, policy: Policy) -> float:
    """What a policy comes to on the case."""
    jobs = [
        Job(i, f"job{i}", float(submit * UNIT_S), gpus, gpus, units, UNIT)
        for i, (submit, gpus, units) in enumerate(case.jobs)
    ]
    result = simulate(grid((case.gpus,)), jobs, policy, Options())
    return float(result.jct_s.mean())


def gaps(
    policies: dict[str, Callable[[], Policy]], cases: int = 100, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Of each policy, the median and the largest gap to the optimum: 0.15 is 15 % above it."""
    rng = np.random.default_rng(seed)
    chosen = [random_case(rng) for _ in range(cases)]
    least = [least_mean_s(case) for case in chosen]
    found = {}
    for name, make in policies.items():
        off = [mean_s(case, make()) / best - 1 for case, best in zip(chosen, least, strict=True)]
        found[name] = (median(off), max(off))
    return found
