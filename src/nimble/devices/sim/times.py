"""How long each task takes alone on a GPU, and how much of the GPU it keeps busy meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nimble.devices.sim.constants import Constants
from nimble.devices.sim.gpus import Gpu
from nimble.devices.sim.work import TILE, Kind, Work
from nimble.graph import DType


@dataclass(frozen=True, slots=True)
class Times:
    """For every task; nanoseconds, and shares from 0 to 1."""

    alone: NDArray[np.float64]
    processors: NDArray[np.float64]
    """Of the multiprocessors, which its thread blocks hold while it runs alone."""
    bandwidth: NDArray[np.float64]
    """Of the GPU's bandwidth."""

    @property
    def work(self) -> float:
        """What the GPU needs for all of it at the least, however it is scheduled."""
        return float(max((self.alone * self.processors).sum(), (self.alone * self.bandwidth).sum()))


def times(work: Work, gpu: Gpu, constants: Constants) -> Times:
    """A kernel takes a fixed time, and the longer of its arithmetic and its bytes.

    A matrix product takes at least what one tile of its result takes alone on a multiprocessor,
    and half a tile while the last ones end.
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
    tile = np.where(work.kind == Kind.MATRIX, 2.0 * TILE * TILE * work.depth * gpu.sms / rate, 0.0)
    computing = np.maximum(arithmetic + tile / 2, constants.latency * tile)
    # What fits in the cache was left there by the kernels before.
    faster = np.where(work.bytes <= gpu.l2_mb * 1e6, constants.cache, 1.0)
    moving = work.bytes / (gpu.bandwidth * constants.memory / 1e9) / faster
    busy = np.maximum(computing, moving)
    each = constants.floor_us * 1e3 + busy
    alone = _by_task(work, each)
    room = np.where(work.kind == Kind.MATRIX, constants.slots, 1.0) * gpu.sms
    # Kernels that only move data leave room beside them for those that compute.
    processors = np.where(work.kind == Kind.MOVE, 0.0, np.minimum(1.0, work.blocks / room) * each)
    whole = np.maximum(alone, 1.0)
    return Times(alone, _by_task(work, processors) / whole, _by_task(work, moving) / whole)


def _by_task(work: Work, each: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.bincount(work.task, each, work.tasks).astype(np.float64)
