"""How long each task takes alone on a GPU, and how much of the GPU it keeps busy meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nimble.devices.sim.constants import Constants
from nimble.devices.sim.gpus import Gpu
from nimble.devices.sim.work import TILE, Kind, Work
from nimble.graph import DType

_SOME = 4
"""Tiles a multiprocessor, with which larger ones pay."""


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
    """A kernel takes the longer of its arithmetic and its bytes, and never less than `floor`.

    A matrix product takes at least what one tile of its result takes alone on a multiprocessor,
    and half a tile while the last ones end, when half of the GPU is free for others.
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
    matrix = work.kind == Kind.MATRIX
    tile = np.where(matrix, 2.0 * TILE * TILE * work.depth * gpu.sms / rate, 0.0)
    larger = np.where(matrix, _larger(work.blocks, gpu), 1)
    ending = tile * larger / 2
    computing = np.maximum(arithmetic + ending, constants.latency * tile)
    # What fits in the cache was left there by the kernels before.
    fits = work.bytes <= gpu.l2_mb * 1e6
    moving = work.bytes / (gpu.bandwidth * constants.memory / 1e9)
    cached = moving / constants.cache
    moving = np.where(fits, cached, moving)
    busy = np.maximum(computing, moving)
    each = np.maximum(constants.floor_us * 1e3, constants.node_us * 1e3 + busy)
    alone = _by_task(work, each)
    # All multiprocessors draw as much as the cache gives; for what memory gives, fewer are needed.
    held = each - busy + np.maximum(computing, cached)
    held -= np.where(arithmetic + ending >= busy, ending, 0.0)
    room = np.where(matrix, constants.slots, 1.0) * gpu.sms
    processors = np.minimum(1.0, work.blocks / larger / room) * held
    whole = np.maximum(alone, 1.0)
    return Times(alone, _by_task(work, processors) / whole, _by_task(work, moving) / whole)


def _larger(tiles: NDArray[np.float64], gpu: Gpu) -> NDArray[np.int64]:
    """How many of our tiles libraries make into one: of 32, 64 and 128 rows and columns they take
    the largest of which every multiprocessor still gets some."""
    each = tiles / (_SOME * gpu.sms)
    return np.where(each >= 16, 16, np.where(each >= 4, 4, 1))


def _by_task(work: Work, each: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.bincount(work.task, each, work.tasks).astype(np.float64)
