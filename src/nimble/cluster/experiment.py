"""From a setup to what it comes to: one run, with its numbers and what it cost to compute."""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from nimble.cluster.arrivals import measured, speed_up, to_load
from nimble.cluster.generate import generate
from nimble.cluster.jobs import Jobs
from nimble.cluster.metrics import metrics
from nimble.cluster.mixes import find_mix
from nimble.cluster.outages import random_outages
from nimble.cluster.page.contents import Run
from nimble.cluster.parameters import known, make
from nimble.cluster.policy import Policy
from nimble.cluster.profile import read_profiles
from nimble.cluster.profiles import bundled
from nimble.cluster.result import Options, Outage, Result
from nimble.cluster.rules import Rules
from nimble.cluster.rules_files import load_rules
from nimble.cluster.setup import ARRIVALS, Setup
from nimble.cluster.simulator import simulate
from nimble.cluster.topology import Topology
from nimble.cluster.topology_files import load_topology
from nimble.cluster.traces import Trace, TraceReport, read_trace
from nimble.cluster.work import alone_on, solo_by_job
from nimble.errors import InputError, SimulationError


@dataclass(frozen=True)
class Outcome:
    """What became of one run."""

    label: str
    setup: Setup
    metrics: dict[str, Any]
    run: dict[str, float]  # what depends on the machine
    report: TraceReport | None = None  # of the trace, if there is one
    notes: tuple[str, ...] = ()  # what else there is to be said
    error: str = ""  # what stopped it, if something did
    fault: str = ""  # the name of that error
    result: Result | None = None  # if it was kept
    reasons: tuple[tuple[str, str], ...] = ()  # words for the policy's own
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of the policy, all of them

    def as_json(self) -> dict[str, Any]:
        """Ready for `json`: the same for the same setup, but for `run`."""
        setup = self.setup.as_json() | {"parameters": _jsonable(self.parameters)}
        found = {
            **self.metrics,
            "notes": list(self.notes),
            "error": self.error or None,
            "setup": setup,
        }
        if self.report is not None:
            found["trace"] = self.report.as_json()
        return {**found, "run": self.run}

    def shown(self) -> Run:
        """For the page."""
        assert self.result is not None
        return Run(
            self.label, self.result, self.metrics, self.setup.collective, dict(self.reasons),
            self.error,
        )  # fmt: skip


def run(setup: Setup, label: str = "", *, keep: bool = False, rates: bool = False) -> Outcome:
    """Runs a setup. If the policy is at fault, what had happened up to there, and the error.

    `keep` the result; `rates`: recorded, for the links' load over time.
    """
    policy, parameters = make_policy(setup)
    topology, jobs, report = workload(replace(setup, policy="", lease=None, parameters=()))
    options = replace(options_of(setup, topology, jobs), record_rates=rates)
    start = time.perf_counter()
    error = fault = ""
    try:
        result = simulate(topology, jobs, policy, options)
    except SimulationError as failed:
        if not isinstance(failed.result, Result):
            raise
        result, error, fault = failed.result, str(failed), type(failed).__name__
    wall_s = time.perf_counter() - start
    counted = None
    if setup.warm_up or setup.cool_down:
        counted = measured(jobs, setup.warm_up, setup.cool_down)
    cost = {
        "wall_s": wall_s,
        "jobs_per_s": len(jobs) / wall_s,
        "events_per_s": result.events / wall_s,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    return Outcome(
        label or setup.called,
        setup,
        metrics(result, counted),
        cost,
        report,
        _of_kinds(topology, jobs),
        error,
        fault,
        result if keep else None,
        tuple(getattr(policy, "reasons", {}).items()),
        parameters,
    )


def _of_kinds(topology: Topology, jobs: Jobs) -> tuple[str, ...]:
    """Which models have no speed of their own on GPUs that are there."""
    found = []
    for kind in sorted({machine.kind for machine in topology.machines} - {""}):
        names = [p.name for p in jobs.profiles if kind not in dict(p.speeds)]
        if names:
            found.append(
                f"on {kind} these run as fast as on their reference GPU, their profiles do not say "
                f"otherwise: {', '.join(sorted(names))}"
            )
    return tuple(found)


def make_policy(setup: Setup) -> tuple[Policy, dict[str, Any]]:
    """The setup's policy and its parameters; with the lease it says, if the policy has leases."""
    given = setup.parameters
    if setup.lease is not None and "lease_s" in known(setup.policy):
        given = (("lease_s", setup.lease), *given)
    return make(setup.policy, given)


def _jsonable(parameters: Mapping[str, Any]) -> dict[str, Any]:
    kinds = (str, bool, int, float, tuple, list, type(None))
    return {k: v if isinstance(v, kinds) else repr(v) for k, v in parameters.items()}


@lru_cache(maxsize=2)
def workload(setup: Setup) -> tuple[Topology, Jobs, TraceReport | None]:
    """The cluster, the jobs that come, and what was read of the trace if there is one."""
    topology = load_topology(
        setup.cluster,
        oversubscription=setup.oversubscription,
        gpus_per_machine=setup.gpus_per_machine,
    )
    alone = alone_on(topology, setup.collective)
    profiles = dict(bundled())
    if setup.profiles:
        profiles |= {profile.name: profile for profile in read_profiles(Path(setup.profiles))}
    report: TraceReport | None = None
    if setup.trace:
        trace = read(setup.trace, setup.format).known(profiles).within(topology.gpus)
        report = trace.report
        if not trace.entries:
            raise InputError(f"no job of it fits into {topology.gpus} GPUs\n{report.text()}")
        jobs = trace.jobs(
            alone, profiles, seed=setup.seed, checkpoint_s=setup.checkpoint,
            restart_s=setup.restart,
        )  # fmt: skip
        jobs = jobs if setup.load is None else to_load(jobs, setup.load, topology.gpus, alone)
    else:
        if setup.generate not in ARRIVALS:
            raise InputError(f"--generate {setup.generate}: expected {', '.join(ARRIVALS)}")
        if setup.generate == "batch" and setup.load is not None:
            raise InputError("--load: batch arrivals come at once, they have no load")
        jobs = generate(
            find_mix(setup.mix), setup.jobs, alone, profiles, arrivals=setup.generate,
            load=setup.offered,
            cluster_gpus=topology.gpus, largest=topology.gpus, tenants=setup.tenants,
            checkpoint_s=setup.checkpoint, restart_s=setup.restart, seed=setup.seed,
        )  # fmt: skip
    if setup.speedup != 1:
        jobs = speed_up(jobs, setup.speedup)
    return topology, jobs, report


@lru_cache(maxsize=1)
def read(path: str, format: str) -> Trace:
    return read_trace(path, format or None)


def options_of(setup: Setup, topology: Topology, jobs: Jobs) -> Options:
    """How the simulator is to go on."""
    rules = Rules()
    outages: tuple[Outage, ...] = ()
    if setup.rules:
        rules, outages = load_rules(setup.rules, topology, jobs.tenants)
    if setup.mtbf:
        alone = solo_by_job(
            jobs.profiles, jobs.model, jobs.gpus_max, alone_on(topology, setup.collective)
        )
        # Twice as long as it would take at best: most runs end before.
        work = float(np.dot(jobs.gpus_max, jobs.iterations * alone))
        until_s = 2 * (float(jobs.submit_s[-1]) + work / topology.gpus)
        outages += random_outages(
            topology,
            until_s=until_s,
            between_s=setup.mtbf * 3600,
            repair_s=setup.repair * 3600,
            seed=setup.seed,
        )
    return Options(
        contention=setup.contention,
        collective=setup.collective,
        rules=rules,
        outages=outages,
        checkpoint_every_s=setup.checkpoint_every or inf,
        until_s=setup.until or inf,
        invariants=setup.check,
    )
