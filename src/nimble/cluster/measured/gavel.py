"""Gavel's measurements: steps a second of 26 kinds of jobs on K80, P100 and V100 GPUs."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from nimble.cluster.buckets import evenly
from nimble.cluster.measured.step_time import Column
from nimble.cluster.profile import Profile
from nimble.errors import InputError

REFERENCE = "v100"
PARAMETERS = {
    "ResNet-18": 11_173_962,
    "ResNet-50": 25_557_032,
    "Transformer": 48_400_000,
    "LM": 13_987_678,
    "Recommendation": 8_063_508,
    "A3C": 3_252_000,
    "CycleGAN": 28_290_000,
}
"""Counted from the models' definitions as released; the Transformer's vocabulary is an estimate."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One kind of job on the reference GPU. Rates are of all GPUs together, so that an iteration
    takes `gpus / rate`."""

    kind: str
    alone: float
    """Steps a second on one GPU."""
    speeds: tuple[tuple[str, float], ...]
    """Of the other GPUs, relative to the reference."""
    spread: tuple[tuple[int, bool, float], ...]
    """(GPUs, in one machine?, seconds of an iteration), for two GPUs or more."""

    @property
    def family(self) -> str:
        return self.kind.split(" (")[0]

    @property
    def bytes(self) -> int:
        return 4 * PARAMETERS[self.family]


@dataclass(frozen=True, slots=True)
class GavelFit:
    """Bandwidths in bytes a second, the same for all kinds; overlap by family of models."""

    inside: float
    across: float
    overlap: dict[str, float]
    error: float
    """The median relative error of iteration times, over all kinds and placements."""
    dropped: int
    """Pairs of measurements in which GPUs in different machines were faster than in one."""
    profiles: tuple[Profile, ...]


def read_gavel(path: Path) -> tuple[list[Measured], int]:
    """The kinds of jobs in Gavel's `simulation_throughputs.json`, and how many pairs of
    measurements were dropped as impossible."""
    try:
        table = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    if not isinstance(table, dict) or REFERENCE not in table:
        raise InputError(f"{path}: no {REFERENCE!r}; expected Gavel's throughputs by GPU kind")
    rates = {kind: _alone(entries) for kind, entries in table.items()}
    together, apart = rates[REFERENCE], rates.get(f"{REFERENCE}_unconsolidated", {})
    found, dropped = [], 0
    for kind in sorted({kind for kind, gpus in together if gpus == 1}):
        if kind.split(" (")[0] not in PARAMETERS:
            raise InputError(f"{path}: {kind!r} is of no known model: {', '.join(PARAMETERS)}")
        alone = together[kind, 1]
        others = (k for k in rates if k != REFERENCE and not k.endswith("_unconsolidated"))
        speeds = [(k, rates[k][kind, 1] / alone) for k in others if (kind, 1) in rates[k]]
        spread: list[tuple[int, bool, float]] = []
        for gpus in sorted({gpus for name, gpus in together if name == kind and gpus > 1}):
            near, far = together[kind, gpus], apart.get((kind, gpus))
            if far is not None and far > near:
                dropped += 1
                continue
            spread.append((gpus, True, gpus / near))
            if far is not None:
                spread.append((gpus, False, gpus / far))
        found.append(Measured(kind, alone, tuple(sorted(speeds)), tuple(spread)))
    return found, dropped


def _alone(entries: dict[str, Any]) -> dict[tuple[str, int], float]:
    """Rates of jobs that share their GPUs with no other; a rate of 0 says that it did not run."""
    rates = {}
    for key, by_partner in entries.items():
        kind, gpus = ast.literal_eval(key)
        if by_partner.get("null"):
            rates[kind, int(gpus)] = float(by_partner["null"])
    return rates


def fit_gavel(measured: Sequence[Measured], dropped: int = 0) -> GavelFit:
    """Two bandwidths and an overlap a family, by the simulator's formula; and the profiles."""
    families = sorted({job.family for job in measured if job.spread})
    rows = [(job, *row) for job in measured for row in job.spread]
    compute = np.array([1 / job.alone for job, *_ in rows])
    sent = np.array([job.bytes * 2 * (gpus - 1) / gpus for job, gpus, *_ in rows])
    near = np.array([near for _, _, near, _ in rows])
    seconds = np.array([seconds for *_, seconds in rows])
    family = np.array([families.index(job.family) for job, *_ in rows])

    def predicted(x: Column) -> Column:
        communication = sent / np.exp(np.where(near, x[0], x[1]))
        made: Column = compute + np.maximum(communication - x[2:][family] * compute, 0.0)
        return made

    start = np.array([np.log(2e10), np.log(1e9), *[0.3] * len(families)])
    low = np.array([np.log(1e8), np.log(1e7), *[0.0] * len(families)])
    high = np.array([np.log(1e12), np.log(1e11), *[1.0] * len(families)])

    def misses(x: Column) -> Column:
        missed: Column = np.log(predicted(x) / seconds)
        return missed

    x = least_squares(misses, start, bounds=(low, high), loss="soft_l1", f_scale=0.1).x
    overlap = {name: round(float(share), 3) for name, share in zip(families, x[2:], strict=True)}
    return GavelFit(
        inside=float(np.exp(x[0])),
        across=float(np.exp(x[1])),
        overlap=overlap,
        error=float(np.median(np.abs(predicted(x) / seconds - 1))),
        dropped=dropped,
        profiles=tuple(_profile(job, overlap) for job in measured),
    )


def _profile(job: Measured, overlap: dict[str, float]) -> Profile:
    return Profile(
        name=job.kind,
        compute_s=round(1 / job.alone, 6),
        buckets=evenly(job.bytes),
        overlap=overlap.get(job.family, 0.0),
        source="Gavel's measurements on V100 (stanford-futuredata/gavel, MIT): step time on one "
        "GPU, speeds of the others; overlap fitted to its multi-GPU rates; 32-bit gradients",
        speeds=tuple((kind, round(speed, 4)) for kind, speed in job.speeds),
    )
