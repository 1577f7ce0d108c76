"""What holds under every policy: quotas per tenant, reservations, machines being drained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nimble.cluster.job import Job
from nimble.errors import InputError


@dataclass(frozen=True, slots=True)
class Reservation:
    """Machines that only jobs of `tenant` may use from `start_s` to `end_s`."""

    tenant: str
    machines: tuple[int, ...]
    start_s: float
    end_s: float

    def __post_init__(self) -> None:
        what = f"reservation for {self.tenant!r}"
        if not self.machines:
            raise InputError(f"{what}: it names no machines")
        check_times(what, self.start_s, self.end_s)


@dataclass(frozen=True, slots=True)
class Drain:
    """From `start_s` on nothing new starts on `machine`; at `end_s` it is open again.

    Jobs still there at `stop_s` are preempted.
    """

    machine: int
    start_s: float
    stop_s: float = float("inf")
    end_s: float = float("inf")

    def __post_init__(self) -> None:
        what = f"drain of machine {self.machine}"
        check_times(what, self.start_s, self.end_s)
        if self.stop_s < self.start_s:
            raise InputError(f"{what}: it stops jobs at {self.stop_s:g} s, before its start")


@dataclass(frozen=True, slots=True)
class Rules:
    """Enforced in what the view offers (Draft.fit) and again when an action is carried out."""

    # The most GPUs that a tenant's jobs may hold together.
    quotas: Mapping[str, int] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()
    drains: tuple[Drain, ...] = ()

    def __post_init__(self) -> None:
        for tenant, gpus in self.quotas.items():
            if gpus < 0:
                raise InputError(f"quota of {tenant!r}: {gpus} GPUs; expected 0 or more")

    def group(self, job: Job) -> str:
        """Jobs of one group are offered the same GPUs; others may be offered different ones."""
        if job.tenant in self.quotas or any(r.tenant == job.tenant for r in self.reservations):
            return job.tenant
        return ""


def check_times(what: str, start_s: float, end_s: float) -> None:
    """InputError unless it lasts for a while."""
    if not 0 <= start_s < float("inf"):
        raise InputError(f"{what}: it begins at {start_s:g} s; expected seconds from 0 up")
    if not end_s > start_s:
        raise InputError(f"{what}: it ends at {end_s:g} s, before its start at {start_s:g} s")
