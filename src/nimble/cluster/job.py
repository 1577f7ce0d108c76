"""A training job: what is asked for, when, and how much work it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nimble.cluster.profile import Profile
from nimble.errors import InputError


@dataclass(frozen=True, slots=True)
class Job:
    """`gpus_min` equal to `gpus_max` is a rigid gang; a job with fewer GPUs than `gpus_max` does
    `iterations * gpus_max / gpus` iterations."""

    id: int
    """Its place in the trace."""
    name: str
    submit_s: float
    gpus_min: int
    gpus_max: int
    iterations: int
    """At `gpus_max` GPUs."""
    profile: Profile
    checkpoint_s: float = 0.0
    restart_s: float = 0.0
    priority: int = 0
    tenant: str = ""

    def __post_init__(self) -> None:
        # Written for speed: a million jobs are checked in well under a second.
        if (
            1 <= self.gpus_min <= self.gpus_max
            and self.iterations >= 1
            and 0 <= self.submit_s < math.inf
            and 0 <= self.checkpoint_s < math.inf
            and 0 <= self.restart_s < math.inf
        ):
            return
        raise InputError(f"job {self.id} ({self.name}): {self._fault()}")

    def _fault(self) -> str:
        if not 1 <= self.gpus_min <= self.gpus_max:
            return f"{self.gpus_min} to {self.gpus_max} GPUs; expected 1 <= min <= max"
        if self.iterations < 1:
            return f"{self.iterations} iterations; expected 1 or more"
        for name in ("submit_s", "checkpoint_s", "restart_s"):
            if not 0 <= getattr(self, name) < math.inf:
                return f"{name} is {getattr(self, name)}; expected seconds from 0 up"
        raise AssertionError(self)
