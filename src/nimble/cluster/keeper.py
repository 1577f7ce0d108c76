"""The rules as they stand now: what is held of quotas, whose a machine is, what is drained."""

from __future__ import annotations

from collections.abc import Sequence

from nimble.cluster.job import Job
from nimble.cluster.rules import Rules
from nimble.cluster.state import JobState
from nimble.cluster.topology import Placement, Topology
from nimble.errors import InputError

# Machines are of class 0, or of the class of the tenant they are reserved for.
MOST_TENANTS = 63


class Keeper:
    """Kept up by the simulator; asked by drafts."""

    def __init__(self, topology: Topology, rules: Rules) -> None:
        self.topology = topology
        self.rules = rules
        self.held: dict[str, int] = dict.fromkeys(rules.quotas, 0)
        tenants = sorted({reservation.tenant for reservation in rules.reservations})
        if len(tenants) > MOST_TENANTS:
            raise InputError(f"reservations for {len(tenants)} tenants; at most {MOST_TENANTS}")
        self.class_of = {tenant: place + 1 for place, tenant in enumerate(tenants)}
        self.owner = [0] * len(topology.machines)
        self.drained: set[int] = set()
        for machine in (
            *(machine for reservation in rules.reservations for machine in reservation.machines),
            *(drain.machine for drain in rules.drains),
        ):
            if not 0 <= machine < len(topology.machines):
                raise InputError(
                    f"a rule for machine {machine}; the cluster has {len(topology.machines)}"
                )

    @property
    def classes(self) -> int:
        return len(self.class_of) + 1

    def times(self) -> list[float]:
        """When something changes."""
        found = {t for r in self.rules.reservations for t in (r.start_s, r.end_s)}
        found |= {t for d in self.rules.drains for t in (d.start_s, d.stop_s, d.end_s)}
        return sorted(t for t in found if t < float("inf"))

    def update(self, now: float) -> None:
        """Whose machines are, and which are drained, from `now` on."""
        self.owner = [0] * len(self.topology.machines)
        for reservation in self.rules.reservations:
            if reservation.start_s <= now < reservation.end_s:
                for machine in reservation.machines:
                    self.owner[machine] = self.class_of[reservation.tenant]
        self.drained = {d.machine for d in self.rules.drains if d.start_s <= now < d.end_s}

    def stopped(self, now: float) -> set[int]:
        """Machines whose jobs are preempted now."""
        return {d.machine for d in self.rules.drains if d.stop_s == now < d.end_s}

    def allowed(self, job: Job) -> int:
        """The classes of machines that a job may use, as bits."""
        return 1 | 1 << self.class_of.get(job.tenant, 0)

    def room(self, job: Job, taken: int = 0) -> float:
        """GPUs left of its tenant's quota, of which `taken` are spoken for."""
        quota = self.rules.quotas.get(job.tenant)
        return float("inf") if quota is None else quota - self.held[job.tenant] - taken

    def took(self, state: JobState, gpus: int) -> None:
        """A job has taken GPUs, or given them up (less than 0)."""
        if state.job.tenant in self.held:
            self.held[state.job.tenant] += gpus

    def may_use(self, job: Job, placement: Placement) -> bool:
        allowed = self.allowed(job)
        return all(
            allowed >> self.owner[machine] & 1 and machine not in self.drained
            for machine, _ in placement
        )

    def could_start(self, job: Job) -> bool:
        """Whether it may start now if all GPUs that it may use were free."""
        open_to = ((m, machine.gpus) for m, machine in enumerate(self.topology.machines))
        return sum(gpus for m, gpus in open_to if self.may_use(job, ((m, 1),))) >= job.gpus_min


def check_quotas(rules: Rules, jobs: Sequence[Job]) -> None:
    """InputError if a job wants more than its tenant's quota: it could never start."""
    for job in jobs if rules.quotas else ():
        quota = rules.quotas.get(job.tenant)
        if quota is not None and job.gpus_min > quota:
            raise InputError(
                f"job {job.id} ({job.name}) wants {job.gpus_min} GPUs; the quota of tenant "
                f"{job.tenant!r} is {quota}. Leave it out, or raise the quota"
            )
