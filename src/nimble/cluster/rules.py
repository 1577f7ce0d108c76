"""What holds under every policy: quotas per tenant, reservations, machines being drained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nimble.cluster.job import Job


@dataclass(frozen=True, slots=True)
class Reservation:
    """Machines that only jobs of `tenant` may use from `start_s` to `end_s`."""

    tenant: str
    machines: tuple[int, ...]
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Drain:
    """From `start_s` on nothing new starts on `machine`; at `end_s` it is open again.

    Jobs still there at `stop_s` are preempted.
    """

    machine: int
    start_s: float
    stop_s: float = float("inf")
    end_s: float = float("inf")


@dataclass(frozen=True, slots=True)
class Rules:
    """Enforced in what the view offers (Draft.fit) and again when an action is carried out."""

    # The most GPUs that a tenant's jobs may hold together.
    quotas: Mapping[str, int] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()
    drains: tuple[Drain, ...] = ()

    def group(self, job: Job) -> str:
        """Jobs of one group are offered the same GPUs; others may be offered different ones."""
        if job.tenant in self.quotas or any(r.tenant == job.tenant for r in self.reservations):
            return job.tenant
        return ""
