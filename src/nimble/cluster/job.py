"""A job: a gang of GPUs wanted from a time on, for a number of iterations of a model."""

from __future__ import annotations

from dataclasses import dataclass

from nimble.cluster.profile import Profile


@dataclass(frozen=True, slots=True)
class Job:
    # Its place in the trace.
    id: int
    name: str
    submit_s: float
    # Equal to gpus_max: a rigid gang.
    gpus_min: int
    gpus_max: int
    # At gpus_max GPUs; an elastic job does iterations * gpus_max / gpus.
    iterations: int
    profile: Profile
    checkpoint_s: float = 0.0
    restart_s: float = 0.0
    priority: int = 0
    tenant: str = ""
