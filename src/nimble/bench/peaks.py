"""What this machine can do at best, printed as JSON.

A process of its own, since the number of threads is fixed before torch is imported.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial

import torch

from nimble.devices.cpu.memory import allocate

SIZES = [1 << power for power in range(18, 29, 2)]
"""Bytes read over and over: what fits into a cache comes from there."""


def fastest(call: Callable[[], object], seconds: float) -> float:
    """Seconds of the fastest of many calls."""
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def flops() -> float:
    """Floating-point operations a second, in large f32 matrix products."""
    best = 0.0
    for n in (768, 1024, 1536):
        a, b, out = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
        best = max(best, 2 * n**3 / fastest(partial(torch.mm, a, b, out=out), 0.4))
    return best


def bandwidth(size: int) -> float:
    """Bytes read a second from memory of this size, in huge pages where there are such, by the
    faster of a sum and a matrix-vector product; what such a call costs without data is taken off.
    """
    wide = allocate(size).view(torch.float32).view(-1, 1024).fill_(1)
    row, tiny = torch.ones(1024), torch.ones(1, 1)
    nothing = min(
        fastest(tiny.sum, 0.02),
        fastest(lambda: torch.mv(tiny, tiny[0]), 0.02),
    )
    best = min(fastest(wide.sum, 0.15), fastest(lambda: torch.mv(wide, row), 0.15))
    return wide.nbytes / max(best - nothing, 1e-9)


if __name__ == "__main__":
    with torch.inference_mode():
        peaks = {"flops": flops(), "bandwidth": {size: bandwidth(size) for size in SIZES}}
    print(json.dumps(peaks))
