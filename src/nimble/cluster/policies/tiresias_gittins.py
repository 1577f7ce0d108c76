"""Tiresias with Gittins indices: who is likely to end after the least more service goes first."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar

from nimble.cluster.policies.tiresias import Tiresias
from nimble.cluster.policy import Memory
from nimble.cluster.view import View

LEVELS_GPU_S = tuple(300.0 * 2**k for k in range(22))
KEPT = 512
LEARN_EVERY = 16


class TiresiasGittins(Tiresias):
    """Knows the GPU-seconds that the jobs which ended have had, and from these what to expect."""

    name = "tiresias-gittins"
    reasons: ClassVar[dict[str, str]] = {
        **Tiresias.reasons,
        "attained": "expected an end per {1:.0f} GPU-seconds, after {0:.0f} s of waiting",
    }

    def start(self) -> Memory:
        return {**super().start(), "served": [], "news": 0, "per_end": []}

    def standing(self, gpu_s: float, memory: Memory) -> float:
        """GPU-seconds per job ended, if it is served on; until enough is known, what it has had."""
        level = bisect_right(LEVELS_GPU_S, gpu_s)
        per_end = memory["per_end"]
        return float(per_end[level] if per_end else level)

    def learn(self, view: View, memory: Memory) -> None:
        served = memory["served"]
        served += [state.attained_gpu_s for state in view.ended]
        memory["news"] += len(view.ended)
        if memory["news"] >= LEARN_EVERY:
            memory["served"] = served[-KEPT:]
            memory["news"] = 0
            memory["per_end"] = gpu_s_per_end(memory["served"], (0.0, *LEVELS_GPU_S))


def gpu_s_per_end(services: Sequence[float], attained: Sequence[float]) -> list[float]:
    """The inverse of the Gittins index after each of `attained`: the least, over all d, of
    E[min(S - a, d) | S > a] / P(S - a <= d | S > a), where S is one of `services`.

    >>> gpu_s_per_end([1.0, 9.0], [0.0, 2.0])
    [2.0, 7.0]
    """
    ordered = sorted(services)
    sums = [0.0, *accumulate(ordered)]
    result = []
    for a in attained:
        begin = bisect_right(ordered, a)
        best = None
        for end in range(begin + 1, len(ordered) + 1):
            d = ordered[end - 1] - a
            spent = sums[end] - sums[begin] - a * (end - begin) + d * (len(ordered) - end)
            per_end = spent / (end - begin)
            best = per_end if best is None else min(best, per_end)
        # Beyond all that was seen: as bad as what it has had.
        result.append(best if best is not None else max(a, ordered[-1]))
    return result
