"""What a simulation is asked for, and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nimble.cluster.job import Job
from nimble.cluster.network import Collective
from nimble.cluster.record import Record
from nimble.cluster.rules import Rules, check_times
from nimble.cluster.topology import Topology

Column = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Outage:
    """A machine fails at `at_s` and is back at `until_s`. Its jobs go back to their checkpoints."""

    machine: int
    at_s: float
    until_s: float

    def __post_init__(self) -> None:
        check_times(f"outage of machine {self.machine}", self.at_s, self.until_s)


@dataclass(frozen=True, slots=True)
class Options:
    # Jobs on the same link slow each other down.
    contention: bool = True
    collective: Collective = Collective.RING
    rules: Rules = field(default_factory=Rules)
    outages: tuple[Outage, ...] = ()
    # Running jobs write a checkpoint this often (at no cost; `checkpoint_s` is paid when a job is
    # preempted). Only failures make a difference: they lose what came after the last one.
    checkpoint_every_s: float = inf
    # Stop here even if jobs are left.
    until_s: float = inf
    # Check every rule at every event (slow): see invariants.py.
    invariants: bool = False
    # Keep every change of a job's rate: needed for link loads over time.
    record_rates: bool = False
    # Write and read the policy's memory as JSON at every decision, as a live restart would.
    restart_policy: bool = False


@dataclass(frozen=True)
class Result:
    """Columns have one entry per job, in the order of `jobs`; nan where it never came to be."""

    topology: Topology
    policy: str
    jobs: Sequence[Job]
    # False: stopped before the last job had ended (until_s, or a policy's error).
    complete: bool
    submit_s: Column
    first_start_s: Column
    finish_s: Column
    ideal_s: Column  # alone at the tightest feasible placement
    waited_s: Column  # without GPUs, requeues included
    run_s: Column  # with GPUs
    compute_s: Column  # of run_s
    overhead_s: Column  # of run_s: checkpoints and restarts
    gpu_s: Column  # GPU-seconds held
    preemptions: Counts  # STOPs, MOVEs and RESIZEs; failures are not counted
    end_s: float  # when the last event happened
    placements: tuple[int, ...]  # starts, moves and resizes by tier
    peak_queue: int  # most jobs waiting after a decision
    shared_link_s: float  # sum over links of the time with two jobs or more on it
    contended_s: float  # sum over jobs of the time below the speed they would have alone
    events: int  # arrivals, ends, actions, outages, wake-ups
    decisions: int
    record: Record
    memory: dict[str, Any]  # the policy's, at the end

    @property
    def jct_s(self) -> Column:
        """From submission to end."""
        return self.finish_s - self.submit_s

    @property
    def comm_s(self) -> Column:
        """Of run_s: communication that computing does not hide, contention included."""
        return np.maximum(0.0, self.run_s - self.overhead_s - self.compute_s)
