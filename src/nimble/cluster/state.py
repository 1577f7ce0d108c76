"""What is known of a job that has been submitted: read by policies, written by the simulator."""

from __future__ import annotations

from typing import Any

from nimble.cluster.job import Job
from nimble.cluster.topology import Placement


class JobState:
    """One job now. Policies read it; whoever writes gets an AttributeError.

    Times and amounts up to `since`, when it last began to wait or to run; `View` has what goes on
    since then (`view.done`, `view.run_s`, ...), because progress is never stepped.
    """

    __slots__ = (
        "attained_gpu_s",
        "done",
        "failures",
        "finished",
        "first_start_s",
        "gpus",
        "group",
        "id",
        "ideal_s",
        "iterations_s",
        "job",
        "kind",
        "overhead_s",
        "placement",
        "preemptions",
        "rank",
        "resumes_s",
        "row",
        "run_s",
        "since",
        "speed",
        "tier",
        "unit_s",
        "waited_s",
    )

    def __init__(self, job: Job, ideal_s: float, group: str = "", row: int = 0) -> None:
        self.job = job
        self.group = group  # Rules.group of the job
        self.kind = ""  # the policy's `kind` of the job
        self.row = row  # its place in the columns of the result
        self.id = job.id
        # Its time from start to end alone at the tightest feasible placement, with gpus_max.
        self.ideal_s = ideal_s
        # When it last began to wait (submitted, or stopped) or to run (started, moved, resized).
        self.since = job.submit_s
        self.gpus = 0  # held now; 0 while it waits
        self.placement: Placement = ()
        self.tier = -1  # of its placement; -1 while it waits
        self.rank: tuple[object, ...] = ()  # (-priority, the policy's rank, id) while it waits
        self.done = 0.0  # iterations at gpus_max done, up to `since`
        self.run_s = 0.0  # with GPUs, up to `since`; overheads included
        self.waited_s = 0.0  # without GPUs, up to `since`
        self.attained_gpu_s = 0.0  # GPU-seconds held, up to `since`
        self.overhead_s = 0.0  # of run_s, for checkpoints and restarts
        self.iterations_s = 0.0  # of run_s, computing (the rest is exposed communication)
        self.first_start_s = -1.0  # -1: never started
        self.preemptions = 0
        self.failures = 0  # times it lost a machine
        self.resumes_s = 0.0  # when it makes progress again, after checkpoint and restart
        self.speed = 0.0  # iterations at gpus_max per second on its placement, alone
        self.unit_s = 0.0  # computing per iteration at gpus_max, on its placement
        self.finished = False

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"{name} of job {self.id} ({self.job.name}) cannot be set: policies read jobs, and say "
            "what is to happen by actions"
        )

    @property
    def demand(self) -> int:
        """GPUs it must have to start."""
        return self.job.gpus_min

    def __repr__(self) -> str:
        return f"JobState({self.id}, gpus={self.gpus}, done={self.done:.3g})"


class Writable(JobState):
    """A job while the simulator writes: the same object, whose class it changes to and fro.

    (A property for each field, or a second object, would slow down every reader.)
    """

    __slots__ = ()
    __setattr__ = object.__setattr__  # type: ignore[assignment]


# become(state, Writable) before the simulator writes, become(state, JobState) when it has.
become = object.__dict__["__class__"].__set__
