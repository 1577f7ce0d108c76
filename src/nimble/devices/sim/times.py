"""How long each task takes alone on a GPU, and how much of the GPU it keeps busy meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nimble.devices.sim.constants import Constants
from nimble.devices.sim.gpus import Gpu
from nimble.devices.sim.work import DEPTH, TILE, Kind, Work
from nimble.graph import DType


@dataclass(frozen=True, slots=True)
class Times:
    """For every task; nanoseconds, and shares from 0 to 1."""

    alone: NDArray[np.float64]
    arithmetic: NDArray[np.float64]
    """Of the GPU's arithmetic, while it runs alone."""
    bandwidth: NDArray[np.float64]
    """Of the GPU's bandwidth."""

    @property
    def work(self) -> float:
        """What the GPU needs for all of it at the least, however it is scheduled."""
        return float(max((self.alone * self.arithmetic).sum(), (self.alone * self.bandwidth).sum()))


def times(work: Work, gpu: Gpu, constants: Constants) -> Times:
    """A kernel takes a fixed time, and the longer of its arithmetic and its bytes.

    A matrix product needs besides, however many multiprocessors there are, what one tile of its
    result needs on one of them.
    """
    peaks = np.array(
        [
            gpu.flops(DType.FLOAT32),
            gpu.flops(DType.FLOAT32, convolution=True),
            gpu.flops(DType.FLOAT16),
        ]
    )
    reached = np.array([1.0, constants.matrix, constants.grouped])
    rate = peaks[work.peak] * reached[work.kind] / 1e9
    flops = work.flops * np.where(work.square, constants.winograd, 1.0)
    arithmetic = flops / rate
    tile = 2.0 * TILE * TILE * np.minimum(work.depth, DEPTH)
    first_tile = np.where(work.kind == Kind.MATRIX, constants.latency * tile * gpu.sms / rate, 0.0)
    moving = work.bytes / (gpu.bandwidth * constants.memory / 1e9)
    each = constants.floor_us * 1e3 + np.maximum(arithmetic + first_tile, moving)
    alone = _by_task(work, each)
    busy = np.maximum(alone, 1.0)
    return Times(alone, _by_task(work, arithmetic) / busy, _by_task(work, moving) / busy)


def _by_task(work: Work, each: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.bincount(work.task, each, work.tasks)
