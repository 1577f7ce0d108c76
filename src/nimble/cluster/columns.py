"""What became of each job, in columns: written when it ends, or when the run stops."""

from __future__ import annotations

from array import array
from math import nan
from typing import Any

import numpy as np

from nimble.cluster.state import JobState

NAMES = (
    "first_start_s", "finish_s", "ideal_s", "waited_s", "run_s", "compute_s", "overhead_s",
    "gpu_s", "preemptions",
)  # fmt: skip
NEVER_CAME = (nan, nan, nan, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


class Columns:
    """One row of NAMES per job, side by side."""

    def __init__(self, jobs: int) -> None:
        self._rows = array("d", NEVER_CAME) * jobs

    def write(self, state: JobState, now: float, done: float | None = None) -> None:
        """`done`: its work now, if it runs."""
        on = 0.0 if state.finished else now - state.since
        running = state.gpus > 0
        at = state.row * len(NAMES)
        self._rows[at : at + len(NAMES)] = array(
            "d",
            (
                state.first_start_s if state.first_start_s >= 0 else nan,
                state.since if state.finished else nan,
                state.ideal_s,
                state.waited_s + (0.0 if running else on),
                state.run_s + (on if running else 0.0),
                state.iterations_s + (0.0 if done is None else (done - state.done) * state.unit_s),
                state.overhead_s,
                state.attained_gpu_s + on * state.gpus,
                state.preemptions,
            ),
        )

    def named(self) -> dict[str, Any]:
        rows = np.array(self._rows).reshape(-1, len(NAMES))
        named: dict[str, Any] = {name: rows[:, i].copy() for i, name in enumerate(NAMES)}
        named["preemptions"] = named["preemptions"].astype(np.int64)
        return named
