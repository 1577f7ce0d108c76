"""Is the step-time model right for networks it has not seen? Fitted on half, tested on half."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from nimble.cluster.measured.pollux import Steps
from nimble.cluster.measured.step_time import SIMULATED, Column, Fabric, fit_fabric, step_times
from nimble.errors import InputError


@dataclass(frozen=True, slots=True)
class Split:
    """One way to divide the models. Errors are relative, their median over all rows pooled."""

    fitted: tuple[str, ...]
    tested: tuple[str, ...]
    fabric: Fabric
    error: float
    by_model: tuple[float, ...]
    """The median error of each tested model."""
    sync_error: float
    simulated_error: float
    """With only the parameters that the simulator has."""
    constant_error: float
    """Of a constant slow-down: what a step takes on one GPU, times one number."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """All splits together."""

    splits: tuple[Split, ...]

    @property
    def error(self) -> float:
        return float(np.median([split.error for split in self.splits]))

    @property
    def simulated_error(self) -> float:
        return float(np.median([split.simulated_error for split in self.splits]))

    @property
    def constant_error(self) -> float:
        return float(np.median([split.constant_error for split in self.splits]))

    @property
    def sync_error(self) -> float:
        return float(np.median([split.sync_error for split in self.splits]))

    @property
    def worst(self) -> tuple[str, float]:
        """The model with the largest median of its errors over the splits that test it."""
        return max(self.by_model().items(), key=lambda item: item[1])

    def by_model(self) -> dict[str, float]:
        errors: dict[str, list[float]] = {}
        for split in self.splits:
            for model, error in zip(split.tested, split.by_model, strict=True):
                errors.setdefault(model, []).append(error)
        return {model: float(np.median(found)) for model, found in sorted(errors.items())}


def judge(models: Sequence[Steps]) -> Verdict:
    """Every way to fit on half of the models and test on the other half."""
    if len(models) < 2:
        raise InputError(f"{len(models)} models measured; expected two or more to split")
    half = len(models) // 2
    return Verdict(tuple(_split(models, chosen) for chosen in combinations(models, half)))


def _split(models: Sequence[Steps], fitted: Sequence[Steps]) -> Split:
    tested = [model for model in models if model not in fitted]
    fabric = fit_fabric(fitted)
    simulated = fit_fabric(fitted, SIMULATED)
    slowdown = float(np.median(np.concatenate([m.step_s / m.compute_s for m in fitted])))
    found = [_errors(step_times(fabric, m)[0], m.step_s) for m in tested]
    return Split(
        fitted=tuple(m.model for m in fitted),
        tested=tuple(m.model for m in tested),
        fabric=fabric,
        error=_median(found),
        by_model=tuple(float(np.median(errors)) for errors in found),
        sync_error=_median([_sync_errors(fabric, m) for m in tested]),
        simulated_error=_median([_errors(step_times(simulated, m)[0], m.step_s) for m in tested]),
        constant_error=_median([_errors(slowdown * m.compute_s, m.step_s) for m in tested]),
    )


def _errors(predicted: Column, measured: Column) -> Column:
    return np.abs(predicted / measured - 1.0)


def _sync_errors(fabric: Fabric, steps: Steps) -> Column:
    """Of the steps in which any synchronisation was seen."""
    seen = steps.sync_s > 0
    return _errors(step_times(fabric, steps)[1][seen], steps.sync_s[seen])


def _median(errors: Sequence[Column]) -> float:
    return float(np.median(np.concatenate(errors)))
