"""Pollux's measurements: step times of six models by placement, on machines with four T4 GPUs."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nimble.errors import InputError

PARAMETERS = {
    "bert": 109_483_778,
    "cifar10": 11_173_962,
    "deepspeech2": 41_187_968,
    "imagenet": 25_557_032,
    "ncf": 1_602_657,
    "yolov3": 61_626_049,
}
"""Counted from the models' definitions as released: BERT-base for SQuAD, ResNet-18 for CIFAR-10,
five bidirectional GRU layers of 800, ResNet-50, NeuMF on ml-1m with 32 factors, YOLOv3 for 20
classes."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Steps of one model that span machines, in columns. All gradients are in 32 bits."""

    model: str
    bytes: int
    machines: NDArray[np.float64]
    gpus: NDArray[np.float64]
    crowd: NDArray[np.float64]
    """GPUs in the fullest machine."""
    batch: NDArray[np.float64]
    """Of each GPU."""
    compute_s: NDArray[np.float64]
    """The step of the same local batch on one GPU."""
    step_s: NDArray[np.float64]
    sync_s: NDArray[np.float64]
    """What the clock showed of the synchronisation: what was not hidden behind computing."""

    def __len__(self) -> int:
        return len(self.step_s)


def read_pollux(folder: Path) -> list[Steps]:
    """Every model under a folder of `<model>/placements.csv` and `<model>/scalability.csv`."""
    models = [name for name in PARAMETERS if (folder / name / "placements.csv").is_file()]
    if not models:
        raise InputError(
            f"{folder}: no placements.csv of {', '.join(PARAMETERS)}; expected the folder that "
            "holds one folder a model"
        )
    return [_read(folder / model, model) for model in models]


def _read(folder: Path, model: str) -> Steps:
    rows: list[tuple[float, ...]] = []
    alone: dict[float, float] = {}
    placed = ("placement", "local_bsz", "step_time", "sync_time")
    for placement, batch, step, sync in _table(folder / "placements.csv", placed):
        machines = [int(digit) for digit in str(int(placement))]
        if machines == [1]:
            alone[batch] = step
        rows.append((len(machines), sum(machines), max(machines), batch, step, sync))
    scaled = folder / "scalability.csv"
    if scaled.is_file():
        columns = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
        for nodes, gpus, batch, step, sync in _table(scaled, columns):
            rows.append((nodes, gpus, -(-gpus // nodes), batch, step, sync))
    if not alone:
        raise InputError(f"{folder / 'placements.csv'}: no row of placement 1")
    found = np.array([row for row in rows if row[0] > 1], float).reshape(-1, 6)
    batches = sorted(alone)
    machines_, gpus_, crowd, batch_, step_, sync_ = found.T
    compute = np.interp(batch_, batches, [alone[batch] for batch in batches])
    return Steps(
        model, 4 * PARAMETERS[model], machines_, gpus_, crowd, batch_, compute, step_, sync_
    )


def _table(path: Path, columns: Sequence[str]) -> list[list[float]]:
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        if missing := set(columns) - set(reader.fieldnames or ()):
            raise InputError(f"{path}: no column {', '.join(sorted(missing))}")
        try:
            return [[float(row[column]) for column in columns] for row in reader]
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}, row {reader.line_num}: {error}") from error
