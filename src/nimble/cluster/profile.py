"""What one model costs per iteration: compute, and bytes to all-reduce."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    name: str
    # One iteration of the local batch on one reference GPU; does not shrink with more GPUs.
    compute_s: float
    # Bytes all-reduced per iteration, in the order in which gradients become ready.
    buckets: tuple[int, ...]
    # The share of compute_s during which communication may run, 0..1.
    overlap: float = 0.0
    # The largest tensor's share of all bytes (Tiresias).
    skew: float = 0.0
    # Where the figures are from.
    source: str = ""
    # Relative speed on GPU kinds other than the reference.
    speeds: tuple[tuple[str, float], ...] = ()

    @property
    def bytes(self) -> int:
        return sum(self.buckets)
