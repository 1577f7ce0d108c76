"""What many measured times say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Summary:
    """Times of single calls, in milliseconds."""

    median: float
    minimum: float
    p99: float
    spread: float
    """The width of the middle nine tenths, over the median."""

    @staticmethod
    def of(times_ns: Sequence[int]) -> Summary:
        ms = np.asarray(times_ns, dtype=float) / 1e6
        low, median, high, p99 = np.percentile(ms, [5, 50, 95, 99])
        spread = (high - low) / median if median else 0.0
        return Summary(float(median), float(ms.min()), float(p99), float(spread))


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of a ratio, and the interval that holds it with 95 % confidence."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(ratios: Sequence[float], resamples: int = 2000) -> Ratio:
        """Bootstrap: the rounds are drawn again, with repetition, and the median taken of each."""
        values = np.asarray(ratios, dtype=float)
        drawn = np.random.default_rng(0).integers(len(values), size=(resamples, len(values)))
        low, high = np.percentile(np.median(values[drawn], axis=1), [2.5, 97.5])
        return Ratio(float(np.median(values)), float(low), float(high))


def quietest(medians: Sequence[Sequence[float]], fewest: int) -> list[int]:
    """The third of the rounds in which the machine was quietest, at least `fewest`.

    `medians` has a list for each contestant, a time a round. How slow a round is, its middle
    contestant says, each compared with its own fastest round: neighbours slow down all of them, but
    not all alike, and for minutes, so that their rounds would tell one run from the next.
    """
    times = np.asarray(medians, dtype=float)
    slow = np.median(times / times.min(axis=1, keepdims=True), axis=0)
    count = max(-(-len(slow) // 3), min(fewest, len(slow)))
    return sorted(int(i) for i in np.argsort(slow, kind="stable")[:count])


def median(values: Sequence[float]) -> float:
    return float(np.median(values))
