"""How long a step takes across machines: a model with few parameters, the same for every network.

Communication is a ring over the GPUs, as in the simulator; a share of computing hides it. The
simulator's three parameters are bandwidth, latency and overlap. Four more are what measurements on
virtual machines show beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from nimble.cluster.buckets import FULL
from nimble.cluster.measured.pollux import Steps

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fabric:
    """What is fitted."""

    bandwidth: float
    """Bytes a second into and out of a machine."""
    latency_s: float
    """Of one message of the ring; it goes around twice for every bucket."""
    overlap: float
    """The share of computing during which communication runs."""
    crowding: float = 0.0
    """Computing takes this share longer with every further GPU in its machine."""
    sharing: float = 0.0
    """Communication grows with the GPUs in a machine to this power."""
    spread: float = 0.0
    """Communication grows with the machines to this power."""
    pair: float = 1.0
    """Communication takes so many times as long between just two machines."""


_LOWEST = Fabric(1e7, 1e-7, 0.0, 0.0, 0.0, -0.5, 1.0)
_HIGHEST = Fabric(1e11, 1e-3, 1.0, 0.3, 1.0, 0.5, 4.0)
_START = Fabric(7e8, 2e-5, 0.4, 0.05, 0.2, 0.05, 1.5)
SIMULATED = 3
"""The first so many parameters are those of the simulator."""


def step_times(fabric: Fabric, steps: Steps) -> tuple[Column, Column]:
    """Predicted step times, and how much of each is communication that nothing hides."""
    around = 2 * (steps.gpus - 1)
    slower = steps.crowd**fabric.sharing * steps.machines**fabric.spread
    slower = slower * np.where(steps.machines == 2, fabric.pair, 1.0)
    communication = steps.bytes / fabric.bandwidth * around / steps.gpus * slower
    communication = communication + fabric.latency_s * around * ceil(steps.bytes / FULL)
    compute = steps.compute_s * (1 + fabric.crowding * (steps.crowd - 1))
    exposed = np.maximum(communication - fabric.overlap * compute, 0.0)
    return compute + exposed, exposed


def fit_fabric(models: Sequence[Steps], parameters: int = len(astuple(_START))) -> Fabric:
    """The fabric that explains the step times best; each model counts the same. With fewer
    `parameters` the last ones stay at what changes nothing."""
    plain = astuple(Fabric(1.0, 1.0, 0.0))

    def fabric(x: Column) -> Fabric:
        values = [*np.exp(x[:2]), *x[2:parameters], *plain[parameters:]]
        return Fabric(*(float(value) for value in values))

    def misses(x: Column) -> Column:
        made = fabric(x)
        return np.concatenate(
            [np.log(step_times(made, m)[0] / m.step_s) / np.sqrt(len(m)) for m in models]
        )

    def point(of: Fabric) -> Column:
        values = np.array(astuple(of)[:parameters])
        values[:2] = np.log(values[:2])
        return values

    found = least_squares(
        misses,
        point(_START),
        bounds=(point(_LOWEST), point(_HIGHEST)),
        loss="soft_l1",
        f_scale=0.01,
        x_scale=np.array([1, 1, 0.3, 0.1, 0.3, 0.3, 1])[:parameters],
    )
    return fabric(found.x)
