"""How long kernels take alone, and how much of a GPU they hold meanwhile."""

from __future__ import annotations

import pytest

from nimble.devices.sim import Gpu, default_constants
from nimble.devices.sim.times import Times, times
from nimble.devices.sim.work import DEPTH, THREADS, TILE, Kernel, Kind, Work

GPU = Gpu("a GPU", "a test", 10, 1.0, 8.0, 100.0, 8.0, 2.0)
CONSTANTS = default_constants()
FLOOR, NODE = CONSTANTS.floor_us * 1e3, CONSTANTS.node_us * 1e3
EVERYWHERE = 10 * THREADS
"""More threads than the GPU holds."""
TILE_NS = 2.0 * TILE * TILE * DEPTH / (GPU.fp32_tflops * 1e3 * CONSTANTS.matrix / GPU.sms)
"""What a tile takes on a multiprocessor that is full."""


def of(kernel: Kernel) -> Times:
    return times(Work.of_kernels([[kernel]]), GPU, CONSTANTS)


def product(tiles: int) -> Times:
    flops = 2.0 * TILE * TILE * DEPTH * tiles
    return of(Kernel(Kind.MATRIX, 0, tiles, flops, DEPTH))


def test_the_smallest_kernel_takes_the_floor_and_holds_hardly_anything():
    found = of(Kernel(Kind.MOVE, 64, 1))
    assert found.alone == FLOOR
    assert found.processors <= 1 / GPU.sms


def test_what_fits_in_the_cache_moves_faster():
    fits, does_not = (of(Kernel(Kind.MOVE, n, EVERYWHERE)) for n in (2_000_000, 2_000_001))
    speed = GPU.bandwidth * CONSTANTS.memory / 1e9
    assert does_not.alone - NODE == pytest.approx(2_000_001 / speed)
    assert fits.alone - NODE == pytest.approx(2_000_000 / speed / CONSTANTS.cache)


def test_moving_data_holds_multiprocessors_and_fewer_where_memory_is_what_is_slow():
    cached = of(Kernel(Kind.MOVE, 2_000_000, EVERYWHERE))
    assert cached.processors == pytest.approx(1)
    slow = of(Kernel(Kind.MOVE, 200_000_000, EVERYWHERE))
    assert slow.processors == pytest.approx(1 / CONSTANTS.cache, rel=0.01)
    assert slow.bandwidth == pytest.approx(1, rel=0.01)


def test_one_tile_alone_is_slow_and_leaves_the_rest_of_the_gpu():
    found = product(1)
    assert found.alone - NODE == pytest.approx(CONSTANTS.latency * TILE_NS)
    assert found.processors == pytest.approx(1 / (CONSTANTS.slots * GPU.sms))


@pytest.mark.parametrize(("tiles", "larger"), [(159, 1), (160, 4), (639, 4), (640, 16)])
def test_larger_products_have_larger_tiles_and_end_more_slowly(tiles: int, larger: int):
    found = product(tiles)
    ending = larger * TILE_NS / 2
    assert found.alone - NODE == pytest.approx(tiles / GPU.sms * TILE_NS + ending)
    # While the last tiles end, others may have what is free.
    assert found.processors == pytest.approx(1 - ending / found.alone[0])
