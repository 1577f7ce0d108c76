"""Constants of the model, fitted by least squares to published speed-ups."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from nimble.reproduce.model import Model, Predictor, crowd_ns
from nimble.reproduce.published import (
    CROWD,
    INFERENCE,
    NO_HELP,
    TRAINING,
)


@dataclass(frozen=True, slots=True)
class Prior:
    """What is known of a constant before the fit: a value, the factor by which it may be off (one
    standard deviation; 1 keeps it), and from where."""

    value: float
    factor: float
    source: str

    @property
    def free(self) -> bool:
        return self.factor > 1


_EAGER = "18 to 26 us a call are published for hosts of 2021 to 2023; the paper's is slower"
PRIORS: Mapping[str, Prior] = {
    "floor_us": Prior(2.5, 1.35, "80 small kernels take 70 us as a graph, and 260 us eager"),
    "matrix": Prior(0.6, 1.35, "what libraries are known to reach in single precision"),
    "grouped": Prior(0.15, 1.6, "a guess: no reuse of operands, but of the cache"),
    "memory": Prior(0.75, 1.15, "STREAM-like kernels reach 70 to 90 %"),
    "cache": Prior(2.4, 1.0, "2,155 GB/s were measured on a V100, of 900 GB/s for its memory"),
    "latency": Prior(2.5, 1.6, "a guess: a tile alone cannot hide the latency of its loads"),
    "slots": Prior(1.0, 1.5, "shared memory and registers of a usual tile"),
    "winograd": Prior(0.6, 1.0, "F(2 x 2) needs 0.44 of the products, and two transforms"),
    "interference": Prior(0.45, 1.35, "2 to 32 convolutions at once on an RTX 2080 Ti (below)"),
    "wait_us": Prior(5.0, 1.6, "a guess: an event costs about as much as two small kernels"),
    "node_us": Prior(0.7, 1.0, "80 small kernels take 70 us as a graph"),
    "graph_us": Prior(2.5, 1.0, "2.5 us and 1 ns a node (Ampere, CUDA 12.6)"),
    "op_us": Prior(22.0, 1.5, _EAGER),
    "operand_us": Prior(5.0, 1.5, _EAGER),
    "backward_us": Prior(25.0, 1.5, _EAGER),
    "update_us": Prior(10.0, 1.5, "in-place calls without autograd"),
    "launch_us": Prior(5.0, 1.0, "4 to 6 us are published"),
}
_OFF = 0.15
"""How far off a prediction may be, as a logarithm (one standard deviation)."""
_GAIN_OFF = 0.025
"""The same for several streams over one, of the same kernels."""
_STEP = 0.02
"""Of logarithms, for derivatives: replays are not smooth below that."""


def training_name(network: str, batch: int) -> str:
    return f"{network}@32x{batch}"


def fit(predictor: Predictor, without: Collection[str] = ()) -> dict[str, float]:
    """The constants that explain best what was published of all networks but `without`.

    Always begun at what is known before: a fit that is begun at another one, and ends where it
    began because replays are not smooth, has seen what that one saw.
    """
    free = [name for name, prior in PRIORS.items() if prior.free]
    known = np.log([PRIORS[name].value for name in free])
    spread = np.log([PRIORS[name].factor for name in free])

    def values(logs: NDArray[np.float64]) -> dict[str, float]:
        fitted = dict(zip(free, np.exp(logs).tolist(), strict=True))
        return {name: fitted.get(name, prior.value) for name, prior in PRIORS.items()}

    def off(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        model = Model.of(values(logs), "fitted")
        return np.concatenate([_misses(predictor, model, without), (logs - known) / spread])

    found = least_squares(
        off, known, diff_step=[_STEP] * len(free), xtol=1e-3, ftol=5e-4, max_nfev=20
    )
    return values(found.x)


def _misses(predictor: Predictor, model: Model, without: Collection[str]) -> NDArray[np.float64]:
    """Logarithms of predicted over published, in units of how far off they may be."""
    cells = [
        predictor.inference_speedup(cell.network, model) / cell.nimble
        for cell in INFERENCE
        if cell.network not in without
    ]
    cells += [
        predictor.training_speedup(training_name(cell.network, cell.batch), model) / cell.nimble
        for cell in TRAINING
        if cell.network not in without
    ]
    cells += [
        predictor.single_ns(case.network, case.gpu, model) / 1e6 / case.single
        for case in NO_HELP
        if case.network.partition("@")[0] not in without
    ]
    gains = [
        predictor.multi_ns(case.network, case.gpu, model)
        / predictor.single_ns(case.network, case.gpu, model)
        / (case.multi / case.single)
        for case in NO_HELP
        if case.network.partition("@")[0] not in without
    ]
    alone = crowd_ns(1, model.constants)
    crowds = [
        (crowd_ns(c.streams, model.constants) / alone) / (c.ms / CROWD[0].ms) for c in CROWD[1:]
    ]
    return np.concatenate([np.log([*cells, *crowds]) / _OFF, np.log(gains) / _GAIN_OFF])
