"""Gradients gathered into buckets, by the rule of PyTorch's DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Iterable

FIRST = 1 << 20
"""Bytes after which the first bucket is full: small, so that communication starts early."""
FULL = 25 << 20


def bucketed(gradients: Iterable[int], full: int = FULL) -> tuple[int, ...]:
    """Bytes of each bucket, for bytes of gradients in the order in which they become ready. A
    bucket is full once it holds the limit or more; no gradient is divided.

    >>> bucketed([600_000, 600_000, 30_000_000, 10], full=25_000_000)
    (1200000, 30000000, 10)
    """
    buckets = []
    held, limit = 0, min(FIRST, full)
    for size in gradients:
        held += size
        if held >= limit:
            buckets.append(held)
            held, limit = 0, full
    return (*buckets, held) if held else tuple(buckets)


def evenly(total: int) -> tuple[int, ...]:
    """Buckets of so many bytes in all, where the single gradients are not known."""
    whole, rest = divmod(total, FULL)
    return (*[FULL] * whole, rest) if rest else (FULL,) * whole
