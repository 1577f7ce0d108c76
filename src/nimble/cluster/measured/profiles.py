"""Profiles from Pollux's measurements: the step on one GPU, and each model's own overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize_scalar

from nimble.cluster.buckets import evenly
from nimble.cluster.measured.pollux import Steps
from nimble.cluster.measured.step_time import Fabric, step_times
from nimble.cluster.profile import Profile


def pollux_profiles(models: Sequence[Steps], fabric: Fabric) -> list[Profile]:
    """One a model, at the middle one of its batches; `fabric` is what was fitted to all."""
    return [_profile(model, fabric) for model in models]


def _profile(model: Steps, fabric: Fabric) -> Profile:
    def miss(overlap: float) -> float:
        made, _ = step_times(replace(fabric, overlap=overlap), model)
        return float(np.mean(np.abs(np.log(made / model.step_s))))

    overlap = float(minimize_scalar(miss, bounds=(0.0, 1.0), method="bounded").x)
    batches = np.unique(model.batch)
    batch = float(batches[len(batches) // 2])
    return Profile(
        name=f"pollux_{model.model}",
        compute_s=round(float(model.compute_s[model.batch == batch][0]), 6),
        buckets=evenly(model.bytes),
        overlap=round(overlap, 3),
        source=f"Pollux's measurements on T4 (petuum/adaptdl, Apache-2.0): step time on one GPU at "
        f"local batch {batch:.0f}; overlap fitted to its steps across machines; 32-bit gradients",
    )
