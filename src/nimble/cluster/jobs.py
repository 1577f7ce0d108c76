"""Many jobs in columns: a million of them take 26 MB, and each is made when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
from numpy.typing import NDArray

from nimble.cluster.job import Job
from nimble.cluster.profile import Profile
from nimble.errors import InputError


@dataclass(frozen=True, slots=True, eq=False)
class Jobs(Sequence[Job]):
    """Jobs by submission time. `jobs[3]` is a Job; its id is its place.

    Columns: `submit_s`, `gpus_min`, `gpus_max`, `iterations`, `model` (a place in `profiles`),
    `tenant` (a place in `tenants`), `priority`. What is the same for all jobs is said once.
    """

    submit_s: NDArray[np.float64]
    gpus_min: NDArray[np.int32]
    gpus_max: NDArray[np.int32]
    iterations: NDArray[np.int64]
    model: NDArray[np.int16]
    profiles: tuple[Profile, ...]
    tenant: NDArray[np.int32] | None = None
    tenants: tuple[str, ...] = ("",)
    priority: NDArray[np.int32] | None = None
    names: Sequence[str] | None = None
    checkpoint_s: float = 0.0
    restart_s: float = 0.0

    def __post_init__(self) -> None:
        columns = (self.gpus_min, self.gpus_max, self.iterations, self.model, self.tenant,
                   self.priority, self.names)  # fmt: skip
        if any(column is not None and len(column) != len(self) for column in columns):
            raise InputError(f"{len(self)} submission times, and a column of another length")
        if len(self) and not np.all(np.diff(self.submit_s) >= 0):
            raise InputError("jobs are not in the order of their submission")

    def __len__(self) -> int:
        return len(self.submit_s)

    @overload
    def __getitem__(self, at: int) -> Job: ...
    @overload
    def __getitem__(self, at: slice) -> Jobs: ...
    def __getitem__(self, at: int | slice) -> Job | Jobs:
        if isinstance(at, slice):
            return self.take(np.arange(len(self))[at])
        place = range(len(self))[at]
        return Job(
            id=place,
            name=f"job{place}" if self.names is None else self.names[place],
            submit_s=float(self.submit_s[place]),
            gpus_min=int(self.gpus_min[place]),
            gpus_max=int(self.gpus_max[place]),
            iterations=int(self.iterations[place]),
            profile=self.profiles[self.model[place]],
            checkpoint_s=self.checkpoint_s,
            restart_s=self.restart_s,
            priority=0 if self.priority is None else int(self.priority[place]),
            tenant="" if self.tenant is None else self.tenants[self.tenant[place]],
        )

    def __iter__(self) -> Iterator[Job]:
        """In order, faster than by place and without making all of them at once."""
        for start in range(0, len(self), 4096):
            stop = min(start + 4096, len(self))
            part = slice(start, stop)
            some = stop - start
            tenant = [0] * some if self.tenant is None else self.tenant[part].tolist()
            priority = [0] * some if self.priority is None else self.priority[part].tolist()
            tenants = ("",) if self.tenant is None else self.tenants
            rows = zip(
                range(start, stop), self.submit_s[part].tolist(), self.gpus_min[part].tolist(),
                self.gpus_max[part].tolist(), self.iterations[part].tolist(),
                self.model[part].tolist(), tenant, priority, strict=True,
            )  # fmt: skip
            for place, submit, least, most, iterations, model, owner, rank in rows:
                yield Job(
                    place,
                    f"job{place}" if self.names is None else self.names[place],
                    submit, least, most, iterations, self.profiles[model],
                    self.checkpoint_s, self.restart_s, rank, tenants[owner],
                )  # fmt: skip

    def take(self, places: NDArray[np.int64]) -> Jobs:
        """Those at these places, in ascending order; ids start at 0 again."""
        return replace(
            self,
            submit_s=self.submit_s[places],
            gpus_min=self.gpus_min[places],
            gpus_max=self.gpus_max[places],
            iterations=self.iterations[places],
            model=self.model[places],
            tenant=None if self.tenant is None else self.tenant[places],
            priority=None if self.priority is None else self.priority[places],
            names=None if self.names is None else [self.names[place] for place in places],
        )

    @staticmethod
    def of(jobs: Sequence[Job]) -> Jobs:
        """The same jobs in columns. Checkpoint and restart must cost all of them the same."""
        if len({(job.checkpoint_s, job.restart_s) for job in jobs}) > 1:
            raise InputError("jobs with different checkpoint or restart costs; use a list of Job")
        profiles = tuple(dict.fromkeys(job.profile for job in jobs))
        tenants = tuple(dict.fromkeys(job.tenant for job in jobs)) or ("",)
        model = {profile: place for place, profile in enumerate(profiles)}
        owner = {tenant: place for place, tenant in enumerate(tenants)}
        return Jobs(
            submit_s=np.array([job.submit_s for job in jobs], np.float64),
            gpus_min=np.array([job.gpus_min for job in jobs], np.int32),
            gpus_max=np.array([job.gpus_max for job in jobs], np.int32),
            iterations=np.array([job.iterations for job in jobs], np.int64),
            model=np.array([model[job.profile] for job in jobs], np.int16),
            profiles=profiles,
            tenant=np.array([owner[job.tenant] for job in jobs], np.int32),
            tenants=tenants,
            priority=np.array([job.priority for job in jobs], np.int32),
            names=[job.name for job in jobs],
            checkpoint_s=jobs[0].checkpoint_s if jobs else 0.0,
            restart_s=jobs[0].restart_s if jobs else 0.0,
        )
