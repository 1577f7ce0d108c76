"""Durations as iterations: how long one takes where a job runs best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nimble.cluster.fit import tightest
from nimble.cluster.network import Collective, cost
from nimble.cluster.profile import Profile
from nimble.cluster.topology import Topology
from nimble.errors import InputError

SoloIteration = Callable[[Profile, int], float]
"""Seconds of one iteration at the tightest placement of so many GPUs, with nobody else there."""


def solo_by_job(
    profiles: Sequence[Profile],
    model: NDArray[Any],
    gpus: NDArray[Any],
    solo_iteration_s: SoloIteration,
) -> NDArray[np.float64]:
    """`solo_iteration_s` of every job, asked once for each kind of job."""
    if not len(model):
        return np.zeros(0)
    pairs = model.astype(np.int64) << 32 | gpus.astype(np.int64)
    kinds, at = np.unique(pairs, return_inverse=True)
    solo = np.array([solo_iteration_s(profiles[k >> 32], k & 0xFFFFFFFF) for k in kinds.tolist()])
    if not np.all(solo > 0):
        wrong = int(kinds[np.argmin(solo)])
        raise InputError(
            f"an iteration of {profiles[wrong >> 32].name} on {wrong & 0xFFFFFFFF} GPUs takes "
            f"{solo.min()} s; expected more than 0"
        )
    found: NDArray[np.float64] = solo[at]
    return found


def iterations_for(
    duration_s: NDArray[np.float64], solo_s: NDArray[np.float64]
) -> NDArray[np.int64]:
    """The whole number of iterations nearest to a duration, at least one."""
    return np.maximum(np.rint(duration_s / solo_s), 1).astype(np.int64)


def alone_on(topology: Topology, collective: Collective = Collective.RING) -> SoloIteration:
    """One iteration at the tightest placement of an empty cluster, by the network model."""

    @cache
    def iteration_s(profile: Profile, gpus: int) -> float:
        placement = tightest(topology, gpus)
        if placement is None:
            raise InputError(
                f"a job asks for {gpus} GPUs, and the cluster has {topology.gpus}; "
                "give a larger cluster, or the largest number of GPUs that a job may ask for"
            )
        return cost(topology, profile, placement, collective).iteration_s

    return iteration_s
